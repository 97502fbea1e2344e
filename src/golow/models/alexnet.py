"""AlexNet in its one-tower form: Krizhevsky, "One weird trick for parallelizing convolutional
neural networks" (2014), arXiv:1404.5997. State-dict names as in torchvision.
"""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments


def _features(in_channels: int) -> nn.Sequential:
    """[batch, in_channels, height, width] -> [batch, 256, height', width'] (6x6 of 224x224)."""
    return nn.Sequential(
        nn.Conv2d(in_channels, 64, kernel_size=11, stride=4, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Conv2d(64, 192, kernel_size=5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(kernel_size=3, stride=2),
        nn.Conv2d(192, 384, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(384, 256, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(256, 256, kernel_size=3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(kernel_size=3, stride=2),
    )


def _classifier(classes: int) -> nn.Sequential:
    """[batch, 256 * 6 * 6] -> logits [batch, classes]."""
    return nn.Sequential(
        nn.Dropout(0.5),
        nn.Linear(256 * 6 * 6, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, classes),
    )


class AlexNet(nn.Module):
    """Five convolutions, an adaptive average pool to 6x6 and three linear layers.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.features = _features(in_channels)
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.flatten = nn.Flatten()
        self.classifier = _classifier(classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        pooled = self.avgpool(self.features(images))
        logits: Tensor = self.classifier(self.flatten(pooled))
        return logits


def alexnet(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> AlexNet:
    """AlexNet for images of at least 63x63; the weights do not depend on the resolution.

    Raises:
        ValueError: the resolution is below 63, or another argument below 1.
    """
    check_arguments("alexnet", in_channels=in_channels, classes=classes, resolution=resolution)
    return AlexNet(in_channels, classes)
