"""Small quantised networks, with numbers that tests choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.calibration import Samples
from golow.workload.quantization.quantize import quantized
from golow.workload.quantization.quantized_layers import (
    Quantized,
    QuantizedConvolution,
    QuantizedLinear,
)

Layer = TypeVar("Layer", bound=Quantized)


def convolution(
    weight: Tensor,
    *,
    signed: bool = True,
    scale: float = 1.0,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> QuantizedConvolution:
    """A convolution with these whole numbers, whose output is its sums."""
    filters, channels, *kernel = weight.shape
    original = nn.Conv2d(
        channels * groups, filters, (kernel[0], kernel[1]), stride, padding, dilation, groups,
        bias=False,
    )  # fmt: skip
    return _with_numbers(QuantizedConvolution(original, _rule(signed)), weight, scale)


def linear(weight: Tensor, *, signed: bool = True, scale: float = 1.0) -> QuantizedLinear:
    """A linear layer with these whole numbers, whose output is its sums."""
    original = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    return _with_numbers(QuantizedLinear(original, _rule(signed)), weight, scale)


def _rule(signed: bool) -> QuantizedLayer:
    return QuantizedLayer(path="layer", rule="int8", signed=signed)


def _with_numbers(layer: Layer, weight: Tensor, scale: float) -> Layer:
    layer.weight.copy_(weight)
    assert layer.input_scale is not None
    layer.input_scale.fill_(scale)
    return layer.eval()


def sums(layer: Quantized, x: Tensor) -> Tensor:
    """What the layer's sums are in exact arithmetic, from float32's product with the scale."""
    assert layer.input_scale is not None
    numbers = torch.round(x * layer.input_scale).clamp(layer.rule.lowest, layer.rule.highest)
    numbers, weight = numbers.double(), layer.weight.double()
    if isinstance(layer, QuantizedLinear):
        return functional.linear(numbers, weight)
    assert isinstance(layer, QuantizedConvolution)
    return functional.conv2d(
        numbers, weight, None, layer.stride, layer.padding, layer.dilation, layer.groups
    )


class Blocks(nn.Module):
    """All that a plan fuses: batch norms, activations, a residual; and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.other = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, H, W] -> [N, 5]"""
        x = functional.relu(self.norm(self.first(x)))
        x = functional.relu(x + self.other(self.second(x)))
        x = functional.relu6(self.deep(x))
        return self.head(x.mean((2, 3)))


def quantized_blocks(x: Tensor, seed: int = 0) -> nn.Module:
    """The blocks with trained-like statistics, quantised by the rule int8 on these inputs."""
    torch.manual_seed(seed)
    module = Blocks()
    module.train()(x)  # statistics of its batch norms
    return quantized(module.eval(), "int8", samples_of(x)).module


def samples_of(*batches: Tensor) -> Samples:
    """The samples of a calibration."""

    def samples() -> Sequence[tuple[Tensor, ...]]:
        return [(batch,) for batch in batches]

    return samples
