"""Layers of networks that normalize, or mix, the channels of each pixel by itself."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn


class Permute(nn.Module):
    """The input with its axes in this order."""

    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        """A view of the input."""
        return x.permute(self.axes)


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of each pixel: [batch, channels, height, width], the same."""

    def forward(self, images: Tensor) -> Tensor:
        """The normalized images."""
        return super().forward(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def feed_forward(width: int, hidden: int) -> nn.Sequential:
    """Two linear layers with GELU in between: [..., width] -> [..., width].

    Their names are torchvision's, which has layers of dropout with probability 0 at 2 and 4.
    """
    layers: list[tuple[str, nn.Module]] = [
        ("0", nn.Linear(width, hidden)),
        ("1", nn.GELU()),
        ("3", nn.Linear(hidden, width)),
    ]
    return nn.Sequential(OrderedDict(layers))
