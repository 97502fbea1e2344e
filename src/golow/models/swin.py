"""Swin Transformer: Liu et al., "Swin transformer: hierarchical vision transformer using shifted
windows" (2021), arXiv:2103.14030. State-dict names as in torchvision.

Images are [batch, height, width, channels] between the patches and the classifier.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from golow.models import check_arguments
from golow.models.channels_last import Permute, feed_forward
from golow.models.stochastic_depth import StochasticDepth
from golow.models.windows import WINDOW, WindowAttention

# Section 3.3 of the paper, Swin-T: channels, blocks and heads of the four stages.
_STAGES = ((96, 2, 3), (192, 2, 6), (384, 6, 12), (768, 2, 24))
_BLOCKS = sum(blocks for _, blocks, _ in _STAGES)
_DROPPED = 0.2  # the probability of stochastic depth in the last block
_PATCH = 4


class Block(nn.Module):
    """Attention within windows and two linear layers, each after a layer norm and added.

    [batch, size, size, channels], the same. dropped: the probability of stochastic depth.
    """

    def __init__(self, channels: int, heads: int, size: int, shift: int, dropped: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attn = WindowAttention(channels, heads, size, shift)
        self.stochastic_depth = StochasticDepth(dropped)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = feed_forward(channels, 4 * channels)

    def forward(self, images: Tensor) -> Tensor:
        """The images after attention and the linear layers."""
        images = images + self.stochastic_depth(self.attn(self.norm1(images)))
        output: Tensor = images + self.stochastic_depth(self.mlp(self.norm2(images)))
        return output


class PatchMerging(nn.Module):
    """[batch, height, width, channels] -> [batch, height / 2, width / 2, 2 * channels]: the four
    pixels of each square side by side, then a linear layer. An odd side gets a row of zeros."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduction = nn.Linear(4 * channels, 2 * channels, bias=False)
        self.norm = nn.LayerNorm(4 * channels)

    def forward(self, images: Tensor) -> Tensor:
        """Images of half the size."""
        height, width = images.shape[1:3]
        if height % 2 or width % 2:
            images = functional.pad(images, (0, 0, 0, width % 2, 0, height % 2))
        batch, height, width, channels = images.shape
        squares = images.view(batch, height // 2, 2, width // 2, 2, channels)
        # The order of the published weights: down the first column, then the second.
        merged: Tensor = self.reduction(self.norm(squares.permute(0, 1, 3, 4, 2, 5).flatten(3)))
        return merged


class SwinTransformer(nn.Module):
    """Patches of 4x4 pixels and four stages, the image halved in between, averaged and classified.

    Input: [batch, in_channels, resolution, resolution]. Output: logits [batch, classes].
    """

    def __init__(self, in_channels: int, classes: int, resolution: int) -> None:
        super().__init__()
        channels, size, index = _STAGES[0][0], resolution // _PATCH, 0
        self.features = nn.Sequential(
            nn.Sequential(
                nn.Conv2d(in_channels, channels, kernel_size=_PATCH, stride=_PATCH),
                Permute(0, 2, 3, 1),
                nn.LayerNorm(channels),
            )
        )
        for width, blocks, heads in _STAGES:
            if width != channels:
                self.features.append(PatchMerging(channels))
                channels, size = width, (size + 1) // 2
            stage = nn.Sequential()
            for position in range(blocks):
                # Every second block shifts its windows by half of their size.
                shift = WINDOW // 2 if position % 2 else 0
                dropped = _DROPPED * index / (_BLOCKS - 1)
                stage.append(Block(width, heads, size, shift, dropped))
                index += 1
            self.features.append(stage)
        self.norm = nn.LayerNorm(channels)
        self.permute = Permute(0, 3, 1, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.head = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, resolution, resolution] -> logits [batch, classes]."""
        features = self.permute(self.norm(self.features(images)))
        logits: Tensor = self.head(self.flatten(self.avgpool(features)))
        return logits


def swin_t(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> SwinTransformer:
    """Swin-T for images of this resolution; its weights do not depend on it.

    Raises:
        ValueError: an argument is too small.
    """
    check_arguments("swin_t", in_channels=in_channels, classes=classes, resolution=resolution)
    return SwinTransformer(in_channels, classes, resolution)
