"""Attention between the pixels of an image, as networks of convolutions write it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

KEY = 8  # channels of a query: the next range of channels is not aligned as whole tensors are


class Pixels(nn.Module):
    """Attention in two ranges of an image, one after the other, as in EfficientViT (Liu et al.
    2023): values are multiplied by transposed weights. value: channels of each head. heads: of each
    range, on an axis; 0: one head without an axis."""

    def __init__(self, value: int = 16, heads: int = 0) -> None:
        super().__init__()
        self.sizes, self.heads = (KEY, KEY, value), heads
        width = value * max(heads, 1)
        self.stem, self.last = nn.Conv2d(3, 2 * width, 1), nn.Conv2d(2 * width, 4, 1)
        made = sum(self.sizes) * max(heads, 1)
        self.layers = nn.ModuleList(nn.Conv2d(width, made, 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        joined: list[Tensor] = []
        for part, layer in zip(self.stem(x).chunk(2, 1), self.layers, strict=True):
            y = joined[-1] + part if joined else part
            joined.append(self._attend(layer(y)).view_as(part))
        return self.last(torch.cat(joined, 1)).mean((2, 3))

    def _attend(self, made: Tensor) -> Tensor:
        made = made.unflatten(1, (self.heads, -1)) if self.heads else made
        query, key, value = made.flatten(-2).split(self.sizes, -2)
        weights = (query.mT @ key * KEY**-0.5).softmax(-1)
        return value @ weights.mT
