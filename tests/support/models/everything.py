"""One network with many operations."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Everything(nn.Module):
    """Many operations in one network, so that few compilations test many of them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.shared = nn.BatchNorm2d(8)  # runs twice in a pass
        self.drop = nn.Dropout(0.5)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(32, 5)
        self.unused = nn.Parameter(torch.ones(3))
        self.scale: Tensor
        self.offset: Tensor
        self.calls: Tensor
        self.register_buffer("scale", torch.full((8, 1, 1), 0.5))
        self.register_buffer("offset", torch.linspace(-1, 1, 8).reshape(8, 1, 1), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.training:
            self.calls += 1
        x = self.relu(self.norm(self.stem(x)))
        y = self.shared(functional.gelu(self.shared(self.depthwise(x))))
        x = x + y * self.scale + self.offset
        a, b = x.chunk(2, dim=1)
        x = torch.cat([functional.max_pool2d(a, 2), functional.avg_pool2d(b, 2)], 1)
        x = torch.cat([x]).clamp(min=-float("inf"), max=6.0)
        if not self.training:  # AOTAutograd replaces it by indexing, which rounds otherwise
            x = functional.interpolate(x, scale_factor=2.0, mode="bilinear")
        x = self.pool(functional.relu6(x)).flatten(1)
        mean = x.mean(dim=1, keepdim=True)
        return self.head(self.drop(x)) - mean, x.sum()


def loss(outputs: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    return functional.cross_entropy(outputs[0], target)
