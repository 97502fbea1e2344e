"""What the networks of `further_networks.py` are built of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class Network(nn.Module):
    """A network, and the shape of a sample."""

    sample: tuple[int, ...]


class Residual(nn.Module):
    """x + layer(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Shortcut(nn.Module):
    """relu(layers(x) + short(x))."""

    def __init__(self, layers: nn.Module, short: nn.Module) -> None:
        super().__init__()
        self.layers, self.short = layers, short

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers(x) + self.short(x))


def conv(
    channels: int,
    filters: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], nn.Module] | None = nn.ReLU,
    dilation: int = 1,
) -> nn.Sequential:
    """Convolution, batch norm, activation."""
    padding = kernel // 2 * dilation
    layer = nn.Conv2d(
        channels, filters, kernel, stride, padding, dilation=dilation, groups=groups, bias=False
    )
    return nn.Sequential(layer, nn.BatchNorm2d(filters), *([act()] if act else []))


class Excitation(nn.Module):
    """Channels weighed by the whole image (Hu et al. 2018)."""

    def __init__(self, channels: int, inner: int, gate: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.relu(self.down(functional.adaptive_avg_pool2d(x, 1)))
        return x * self.gate(self.up(weights))


class Classifier(Network):
    """Blocks, the mean over the image, a linear layer."""

    def __init__(self, blocks: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.blocks, self.head = blocks, nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))
