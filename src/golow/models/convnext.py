"""ConvNeXt: Liu, Mao, Wu, Feichtenhofer, Darrell & Xie, "A ConvNet for the 2020s" (2022),
arXiv:2201.03545. State-dict names as in torchvision.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from golow.models import check_arguments
from golow.models.channels_last import LayerNorm2d, Permute
from golow.models.stochastic_depth import StochasticDepth

# Section 3 of the paper, ConvNeXt-T: channels and blocks of the four stages.
_STAGES = ((96, 3), (192, 3), (384, 9), (768, 3))
_BLOCKS = sum(blocks for _, blocks in _STAGES)
_DROPPED = 0.1  # the probability of stochastic depth in the last block
_EPSILON = 1e-6
_LAYER_SCALE = 1e-6


class Block(nn.Module):
    """A 7x7 convolution of each channel, layer norm, and two linear layers, added to the input.

    [batch, channels, height, width], the same. dropped: the probability of stochastic depth.
    """

    def __init__(self, channels: int, dropped: float) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels),
            Permute(0, 2, 3, 1),
            nn.LayerNorm(channels, eps=_EPSILON),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
            Permute(0, 3, 1, 2),
        )
        self.layer_scale = nn.Parameter(torch.empty(channels, 1, 1))
        self.stochastic_depth = StochasticDepth(dropped)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Scale the branch by a small number: the block begins close to the identity."""
        nn.init.constant_(self.layer_scale, _LAYER_SCALE)

    def forward(self, images: Tensor) -> Tensor:
        """The input plus the scaled branch."""
        branch: Tensor = self.stochastic_depth(self.layer_scale * self.block(images))
        return branch + images


class ConvNeXt(nn.Module):
    """Patches of 4x4 pixels and four stages, the image halved in between, averaged and classified.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int) -> None:
        super().__init__()
        channels, index = _STAGES[0][0], 0
        self.features = nn.Sequential(
            nn.Sequential(
                nn.Conv2d(in_channels, channels, kernel_size=4, stride=4),
                LayerNorm2d(channels, eps=_EPSILON),
            )
        )
        for width, blocks in _STAGES:
            if width != channels:
                norm = LayerNorm2d(channels, eps=_EPSILON)
                halve = nn.Conv2d(channels, width, kernel_size=2, stride=2)
                self.features.append(nn.Sequential(norm, halve))
                channels = width
            stage = nn.Sequential()
            for _ in range(blocks):
                stage.append(Block(width, _DROPPED * index / (_BLOCKS - 1)))
                index += 1
            self.features.append(stage)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            LayerNorm2d(channels, eps=_EPSILON), nn.Flatten(), nn.Linear(channels, classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        logits: Tensor = self.classifier(self.avgpool(self.features(images)))
        return logits


def convnext_tiny(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> ConvNeXt:
    """ConvNeXt-T; its weights do not depend on the resolution.

    Raises:
        ValueError: an argument is too small.
    """
    check_arguments(
        "convnext_tiny", in_channels=in_channels, classes=classes, resolution=resolution
    )
    return ConvNeXt(in_channels, classes)
