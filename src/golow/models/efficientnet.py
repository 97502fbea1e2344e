"""EfficientNet: Tan & Le, "EfficientNet: rethinking model scaling for convolutional neural
networks" (2019), arXiv:1905.11946. State-dict names as in torchvision.
"""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments
from golow.models.stochastic_depth import StochasticDepth

# Table 1 of the paper: expansion, kernel size, stride of the first block, output channels, blocks.
_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
_BLOCKS = sum(blocks for *_, blocks in _STAGES)
_DROPPED = 0.2  # the probability of stochastic depth after the last block


def _convolution(
    in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, groups: int = 1
) -> list[nn.Module]:
    """Convolution and batch norm; padded so that stride 1 keeps height and width."""
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
    ]


class SqueezeExcitation(nn.Module):
    """Scales each channel by a number between 0 and 1 that depends on the means of all channels
    (Hu, Shen & Sun 2018, arXiv:1709.01507). [batch, channels, height, width], the same.
    """

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, kernel_size=1)
        self.fc2 = nn.Conv2d(squeezed, channels, kernel_size=1)
        self.activation = nn.SiLU(inplace=True)
        self.scale_activation = nn.Sigmoid()

    def forward(self, images: Tensor) -> Tensor:
        """The scaled images."""
        squeezed = self.activation(self.fc1(self.avgpool(images)))
        scale: Tensor = self.scale_activation(self.fc2(squeezed))
        return scale * images


class MBConv(nn.Module):
    """Widen by 1x1, filter each channel by itself, scale the channels, project by 1x1.

    [batch, in_channels, height, width] -> [batch, out_channels, height / stride, width / stride];
    the input is added where the shapes agree. dropped: the probability of stochastic depth.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int,
        expansion: int,
        dropped: float,
    ) -> None:
        super().__init__()
        hidden = in_channels * expansion
        widen = [nn.Sequential(*_convolution(in_channels, hidden, 1), nn.SiLU(inplace=True))]
        self.block = nn.Sequential(
            *(widen if expansion != 1 else []),
            nn.Sequential(
                *_convolution(hidden, hidden, kernel_size, stride, groups=hidden),
                nn.SiLU(inplace=True),
            ),
            SqueezeExcitation(hidden, max(1, in_channels // 4)),
            nn.Sequential(*_convolution(hidden, out_channels, 1)),
        )
        self.residual = stride == 1 and in_channels == out_channels
        if self.residual:
            self.stochastic_depth = StochasticDepth(dropped)
        # The last batch norm of the branch, if there is a sum; see initialise.py.
        self.zero_gamma_target = f"block.{len(self.block) - 1}.1" if self.residual else ""

    def forward(self, images: Tensor) -> Tensor:
        """The projected features, plus the input where the block is residual."""
        branch: Tensor = self.block(images)
        return self.stochastic_depth(branch) + images if self.residual else branch


def _stages() -> list[nn.Module]:
    """The blocks; each is dropped with a probability that grows with its index."""
    stages: list[nn.Module] = []
    channels, index = 32, 0
    for expansion, kernel_size, stride, width, blocks in _STAGES:
        stage = nn.Sequential()
        for position in range(blocks):
            dropped = _DROPPED * index / _BLOCKS
            first = stride if position == 0 else 1
            stage.append(MBConv(channels, width, kernel_size, first, expansion, dropped))
            channels, index = width, index + 1
        stages.append(stage)
    return stages


class EfficientNet(nn.Module):
    """Seven stages of blocks between two convolutions, averaged and classified.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(*_convolution(in_channels, 32, 3, stride=2), nn.SiLU(inplace=True)),
            *_stages(),
            nn.Sequential(*_convolution(320, 1280, 1), nn.SiLU(inplace=True)),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        pooled = self.avgpool(self.features(images))
        logits: Tensor = self.classifier(self.flatten(pooled))
        return logits


def efficientnet_b0(
    *, in_channels: int = 3, classes: int = 1000, resolution: int = 224
) -> EfficientNet:
    """EfficientNet-B0; weights do not depend on the resolution, and every one is valid.

    Raises:
        ValueError: an argument is below 1.
    """
    check_arguments(
        "efficientnet_b0", in_channels=in_channels, classes=classes, resolution=resolution
    )
    return EfficientNet(in_channels, classes)
