"""MobileNet: Howard et al., "MobileNets: efficient convolutional neural networks for mobile vision
applications" (2017), arXiv:1704.04861. torchvision does not have it. Keras publishes the same
count, 4,231,976 trainable parameters.
"""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments

# Table 1 of the paper: output channels and stride of each depthwise separable convolution.
_LAYERS = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)


def _convolution(
    in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """Convolution, batch norm and ReLU; padded so that stride 1 keeps height and width."""
    return [
        nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=kernel_size // 2,
            groups=groups,
            bias=False,
        ),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    ]


class MobileNetV1(nn.Module):
    """A convolution and thirteen depthwise separable convolutions, averaged and classified.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        channels = 32
        self.features = nn.Sequential(nn.Sequential(*_convolution(in_channels, channels, 3, 2)))
        for width, stride in _LAYERS:
            depthwise = _convolution(channels, channels, 3, stride, groups=channels)
            self.features.append(nn.Sequential(*depthwise, *_convolution(channels, width, 1)))
            channels = width
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        logits: Tensor = self.classifier(self.flatten(self.avgpool(self.features(images))))
        return logits


def mobilenet_v1(
    *, in_channels: int = 3, classes: int = 1000, resolution: int = 224
) -> MobileNetV1:
    """MobileNet of width 1; weights do not depend on the resolution, and every one is valid.

    Raises:
        ValueError: an argument is below 1.
    """
    check_arguments("mobilenet_v1", in_channels=in_channels, classes=classes, resolution=resolution)
    return MobileNetV1(in_channels, classes)
