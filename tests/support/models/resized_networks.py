"""Networks that resize what is between their layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Resized(nn.Module):
    """A convolution, its result in another size, and another convolution."""

    def __init__(self, axes: int = 2, channels: int = 16, **settings: object) -> None:
        super().__init__()
        kind = nn.Conv2d if axes == 2 else nn.Conv3d
        self.first, self.second = kind(4, channels, 2), kind(channels, 4, 2)
        self.settings = settings

    def forward(self, x: Tensor) -> Tensor:
        y = functional.interpolate(self.first(x), **self.settings)  # type: ignore[arg-type]
        return self.second(y).flatten(1)


WHOLE = {
    "nearest, twice": Resized(scale_factor=2.0),
    "nearest, by size": Resized(size=(18, 8)),
    "nearest, thrice": Resized(channels=6, size=(18, 12)),
    "bilinear, twice": Resized(scale_factor=2.0, mode="bilinear"),
    "bilinear, by size": Resized(channels=6, size=(7, 9), mode="bilinear"),
    "bilinear, smaller": Resized(size=(4, 3), mode="bilinear"),
    "volume, nearest": Resized(3, scale_factor=2.0),
    "volume, linear": Resized(3, 6, size=(5, 7, 9), mode="trilinear"),
}


def image(module: Resized) -> Tensor:
    volume = isinstance(module.first, nn.Conv3d)
    return torch.randn(2, 4, *([4] if volume else []), 7, 5)
