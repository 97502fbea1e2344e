"""MobileNetV2: Sandler, Howard, Zhu, Zhmoginov & Chen, "MobileNetV2: inverted residuals and
linear bottlenecks" (2018), arXiv:1801.04381. State-dict names as in torchvision.
"""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments

# Table 2 of the paper: expansion, output channels, blocks, stride of the first block.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _convolution(
    in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution, batch norm and ReLU6; padded so that stride 1 keeps height and width."""
    return nn.Sequential(
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
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Widen by 1x1, filter each channel by 3x3, project by 1x1 without an activation.

    [batch, in_channels, height, width] -> [batch, out_channels, height / stride, width / stride];
    the input is added where the shapes agree.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = in_channels * expansion
        widen = [_convolution(in_channels, hidden, 1)] if expansion != 1 else []
        self.conv = nn.Sequential(
            *widen,
            _convolution(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, out_channels, kernel_size=1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.residual = stride == 1 and in_channels == out_channels
        # The last batch norm of the branch, if there is a sum; see initialise.py.
        self.zero_gamma_target = f"conv.{len(self.conv) - 1}" if self.residual else ""

    def forward(self, images: Tensor) -> Tensor:
        """The projected features, plus the input where the block is residual."""
        branch: Tensor = self.conv(images)
        return images + branch if self.residual else branch


def _features(in_channels: int) -> nn.Sequential:
    """[batch, in_channels, height, width] -> [batch, 1280, height / 32, width / 32]."""
    layers: list[nn.Module] = [_convolution(in_channels, 32, 3, stride=2)]
    channels = 32
    for expansion, width, blocks, stride in _STAGES:
        for index in range(blocks):
            first = index == 0
            layers.append(InvertedResidual(channels, width, stride if first else 1, expansion))
            channels = width
    layers.append(_convolution(channels, 1280, 1))
    return nn.Sequential(*layers)


class MobileNetV2(nn.Module):
    """Seventeen inverted residual blocks between two convolutions, averaged and classified.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.features = _features(in_channels)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        pooled = self.avgpool(self.features(images))
        logits: Tensor = self.classifier(self.flatten(pooled))
        return logits


def mobilenet_v2(
    *, in_channels: int = 3, classes: int = 1000, resolution: int = 224
) -> MobileNetV2:
    """MobileNetV2 of width 1; weights do not depend on the resolution, and every one is valid.

    Raises:
        ValueError: an argument is below 1.
    """
    check_arguments("mobilenet_v2", in_channels=in_channels, classes=classes, resolution=resolution)
    return MobileNetV2(in_channels, classes)
