"""Small networks for tests: drawn at random, or one with many operations."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional


class Residual(nn.Module):
    """Convolution and batch norm beside an identity, as a residual block has them."""

    def __init__(self, channels: int, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=groups > 1)
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x)) + x)


class Small(nn.Module):
    """One of everything that the zoo has, on 3x16x16 images; ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.block = nn.Sequential(Residual(8), Residual(8, groups=8))
        self.pool = nn.AdaptiveAvgPool2d((2, 2))
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.stem(x), 3, stride=2, padding=1)
        x = self.block(functional.relu6(x))
        return self.fc(self.drop(torch.flatten(self.pool(x), 1)))


@st.composite
def networks(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, ...]]:
    """A random network of the zoo's operations and the shape of one sample that fits it."""
    channels, height, width = (draw(st.integers(*ends)) for ends in ((1, 4), (6, 13), (6, 13)))
    shape, layers = (channels, height, width), []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["conv", "norm", "act", "residual", "pool", "depthwise"]))
        if kind == "conv":
            wider = draw(st.sampled_from([2, 3, 6]))
            kernel = draw(st.sampled_from([1, 3]))
            stride = draw(st.sampled_from([1, 2]))
            layers.append(nn.Conv2d(channels, wider, kernel, stride, padding=kernel // 2))
            channels = wider
        elif kind == "norm":
            layers.append(nn.BatchNorm2d(channels))
        elif kind == "act":
            layers.append(draw(st.sampled_from([nn.ReLU(), nn.Tanh(), nn.ReLU6()])))
        elif kind == "residual":
            layers.append(Residual(channels))
        elif kind == "depthwise":
            layers.append(nn.Conv2d(channels, channels, 3, padding=2, dilation=2, groups=channels))
        else:
            layers.append(draw(st.sampled_from([nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(2, 1, 1)])))
    out = draw(st.sampled_from([1, 2, 3]))
    layers += [nn.AdaptiveAvgPool2d(out), nn.Flatten(), nn.Linear(channels * out * out, 5)]
    return nn.Sequential(*layers), shape
