"""ShuffleNetV2: Ma, Zhang, Zheng & Sun, "ShuffleNet V2: practical guidelines for efficient CNN
architecture design" (2018), arXiv:1807.11164. State-dict names as in torchvision.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from golow.models import check_arguments

# Table 5 of the paper, width 1: blocks and channels of the stages 2, 3 and 4.
_STAGES = ((4, 116), (8, 232), (4, 464))


def _pointwise(in_channels: int, out_channels: int) -> list[nn.Module]:
    """1x1 convolution, batch norm and ReLU."""
    return [
        nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    ]


def _depthwise(channels: int, stride: int) -> list[nn.Module]:
    """3x3 convolution of each channel by itself, and batch norm."""
    return [
        nn.Conv2d(channels, channels, 3, stride=stride, padding=1, groups=channels, bias=False),
        nn.BatchNorm2d(channels),
    ]


class InvertedResidual(nn.Module):
    """Half of the channels passes, or is halved in size, beside a branch for the other half.

    [batch, in_channels, height, width] -> [batch, out_channels, height / stride, width / stride].
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        half = out_channels // 2
        self.splits = stride == 1
        self.branch1 = nn.Sequential()
        if not self.splits:
            self.branch1 = nn.Sequential(
                *_depthwise(in_channels, stride), *_pointwise(in_channels, half)
            )
        self.branch2 = nn.Sequential(
            *_pointwise(half if self.splits else in_channels, half),
            *_depthwise(half, stride),
            *_pointwise(half, half),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Both halves, their channels in turn."""
        left, right = images.chunk(2, dim=1) if self.splits else (images, images)
        return _shuffled(torch.cat((self.branch1(left), self.branch2(right)), dim=1))


def _shuffled(images: Tensor) -> Tensor:
    """The channels of two halves in turn: the first of each, the second of each, ..."""
    batch, channels, height, width = images.shape
    halves = images.view(batch, 2, channels // 2, height, width)
    return halves.transpose(1, 2).reshape(batch, channels, height, width)


class ShuffleNetV2(nn.Module):
    """A convolution, three stages of blocks and a 1x1 convolution, averaged and classified.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        channels = 24
        self.conv1 = nn.Sequential(
            nn.Conv2d(in_channels, channels, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
        )
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        stages = []
        for blocks, width in _STAGES:
            stage = nn.Sequential(InvertedResidual(channels, width, stride=2))
            for _ in range(blocks - 1):
                stage.append(InvertedResidual(width, width, stride=1))
            stages.append(stage)
            channels = width
        self.stage2, self.stage3, self.stage4 = stages
        self.conv5 = nn.Sequential(*_pointwise(channels, 1024))
        self.fc = nn.Linear(1024, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        features = self.maxpool(self.conv1(images))
        features = self.stage4(self.stage3(self.stage2(features)))
        logits: Tensor = self.fc(self.conv5(features).mean((2, 3)))
        return logits


def shufflenet_v2(
    *, in_channels: int = 3, classes: int = 1000, resolution: int = 224
) -> ShuffleNetV2:
    """ShuffleNetV2 of width 1 (torchvision's ``shufflenet_v2_x1_0``); weights do not depend on the
    resolution, and every one is valid.

    Raises:
        ValueError: an argument is below 1.
    """
    check_arguments(
        "shufflenet_v2", in_channels=in_channels, classes=classes, resolution=resolution
    )
    return ShuffleNetV2(in_channels, classes)
