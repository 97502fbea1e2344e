"""VGG: Simonyan & Zisserman, "Very deep convolutional networks for large-scale image
recognition" (2015), arXiv:1409.1556, without batch norm. State-dict names as in torchvision.
"""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments

_WIDTHS = (64, 128, 256, 512, 512)  # output channels of the five stages
_VGG16 = (2, 2, 3, 3, 3)  # 3x3 convolutions in each stage: configuration D of the paper
_VGG19 = (2, 2, 4, 4, 4)  # configuration E


def _features(in_channels: int, convolutions: tuple[int, ...]) -> nn.Sequential:
    """[batch, in_channels, height, width] -> [batch, 512, height // 32, width // 32]."""
    layers: list[nn.Module] = []
    channels = in_channels
    for width, count in zip(_WIDTHS, convolutions, strict=True):
        for _ in range(count):
            layers += [
                nn.Conv2d(channels, width, kernel_size=3, padding=1),
                nn.ReLU(inplace=True),
            ]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def _classifier(classes: int) -> nn.Sequential:
    """[batch, 512 * 7 * 7] -> logits [batch, classes]."""
    return nn.Sequential(
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, classes),
    )


class VGG(nn.Module):
    """Five stages of 3x3 convolutions, an adaptive average pool to 7x7 and three linear layers.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int, convolutions: tuple[int, ...]) -> None:
        super().__init__()
        self.features = _features(in_channels, convolutions)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.flatten = nn.Flatten()
        self.classifier = _classifier(classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        pooled = self.avgpool(self.features(images))
        logits: Tensor = self.classifier(self.flatten(pooled))
        return logits


def vgg16(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> VGG:
    """VGG-16 for images of at least 32x32; the weights do not depend on the resolution.

    Raises:
        ValueError: the resolution is below 32, or another argument below 1.
    """
    check_arguments("vgg16", in_channels=in_channels, classes=classes, resolution=resolution)
    return VGG(in_channels, classes, _VGG16)


def vgg19(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> VGG:
    """VGG-19 for images of at least 32x32; the weights do not depend on the resolution.

    Raises:
        ValueError: the resolution is below 32, or another argument below 1.
    """
    check_arguments("vgg19", in_channels=in_channels, classes=classes, resolution=resolution)
    return VGG(in_channels, classes, _VGG19)
