"""Quantised layers in PyTorch: the definition of what every level computes.

They compute with whole numbers that are held as floating point, which is exact in float64: the
reference of a comparison is the module itself in float64. In float32 a sum is exact up to 2^24,
and rounded like any other sum beyond.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.quantization import QuantizedLayer

LARGEST_WEIGHT = 127


class Rounding(nn.Module):
    """A layer that rounds activations, to whole numbers unless it says otherwise.

    input_scale: a number, by which activations are multiplied before they are rounded; None if they
    stay as they are.
    """

    input_scale: Tensor | None

    def __init__(self, rule: QuantizedLayer) -> None:
        super().__init__()
        self.rule = rule

    def activations(self, x: Tensor) -> Tensor:
        """The activations as the layer multiplies them: whole numbers, unless they are kept."""
        if self.input_scale is None:
            return x
        rounded = torch.round(x * self.input_scale)
        return torch.clamp(rounded, self.rule.lowest, self.rule.highest)

    def unit(self, scaled: Tensor) -> Tensor:
        """The distance of neighbouring numbers, to one of which each of these is rounded."""
        return torch.ones_like(scaled)


class Quantized(Rounding):
    """A layer with weights in whole numbers.

    weight: int8, of the shape of the original. output_scale: [outputs], what a unit of a sum is
    worth in the output. bias: the original's.
    """

    output_scale: Tensor
    weight: Tensor
    bias: nn.Parameter | None

    def __init__(self, original: nn.Conv2d | nn.Linear, rule: QuantizedLayer) -> None:
        super().__init__(rule)
        weight = original.weight
        form = torch.contiguous_format  # of a weight that is transposed, too
        numbers = torch.zeros_like(weight, dtype=torch.int8, memory_format=form)
        self.register_buffer("weight", numbers)
        self.register_buffer("output_scale", torch.ones_like(weight.detach().flatten(1)[:, 0]))
        one = torch.ones((), dtype=weight.dtype, device=weight.device)
        self.register_buffer("input_scale", one if rule.rounds_activations else None)
        self.bias = original.bias  # type: ignore[assignment]  # PyTorch says Tensor

    @property
    def numbers(self) -> int:
        """How many weights it has."""
        return self.weight.numel()

    @torch.no_grad()
    def take(self, weight: Tensor) -> None:
        """Take the numbers of a weight of the original's shape."""
        largest = weight.flatten(1).double().abs().amax(1)
        # A channel of zeros has any scale.
        unit = torch.where(largest > 0, largest / LARGEST_WEIGHT, 1.0)
        numbers = torch.round(weight.double() / unit.reshape(-1, *[1] * (weight.dim() - 1)))
        self.weight.copy_(numbers.clamp(-LARGEST_WEIGHT, LARGEST_WEIGHT))
        self.output_scale.copy_(
            unit if self.input_scale is None else unit / self.input_scale.double()
        )

    def extra_repr(self) -> str:
        """The rule, as in a printed module."""
        signed = ", signed" if self.rule.signed and self.input_scale is not None else ""
        return f"{list(self.weight.shape)}, {self.rule.rule}{signed}"


class QuantizedConvolution(Quantized):
    """A convolution of images, with zero padding."""

    def __init__(self, original: nn.Conv2d, rule: QuantizedLayer) -> None:
        super().__init__(original, rule)
        self.stride, self.padding = original.stride, original.padding
        self.dilation, self.groups = original.dilation, original.groups

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, K, P, Q]"""
        if self.input_scale is None:
            wide = self.weight.to(x.dtype) * self.output_scale.reshape(-1, 1, 1, 1)
            return functional.conv2d(
                x, wide, self.bias, self.stride, self.padding, self.dilation, self.groups
            )
        numbers = self.activations(x)
        sums = functional.conv2d(
            numbers, self.weight.to(numbers.dtype), None, self.stride, self.padding,
            self.dilation, self.groups,
        )  # fmt: skip
        y = sums * self.output_scale.reshape(-1, 1, 1)
        return y if self.bias is None else y + self.bias.reshape(-1, 1, 1)


class QuantizedLinear(Quantized):
    """A linear layer."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., C] -> [..., K]"""
        if self.input_scale is None:
            wide = self.weight.to(x.dtype) * self.output_scale.reshape(-1, 1)
            return functional.linear(x, wide, self.bias)
        numbers = self.activations(x)
        y = functional.linear(numbers, self.weight.to(numbers.dtype)) * self.output_scale
        return y if self.bias is None else y + self.bias
