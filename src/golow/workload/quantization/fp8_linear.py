"""Linear layers of 8-bit floating-point numbers: e4m3, with 4 exponent and 3 mantissa bits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.quantization import LARGEST_E4M3, QuantizedLayer
from golow.workload.quantization.compensation import rounded
from golow.workload.quantization.quantized_layers import Quantized

E4M3 = torch.float8_e4m3fn
MANTISSA_BITS = 3
SMALLEST_NORMAL = 2.0**-6
"""Numbers below it are as far apart as those from it to its double."""


class E4m3Numbers:
    """Numbers of e4m3, up to 448."""

    def scale_of(self, weight: Tensor) -> Tensor:
        """The scale with which the largest weight becomes the largest number."""
        largest = weight.abs().amax(-1, keepdim=True)
        # Any scale is right for a group of zeros.
        return torch.where(largest > 0, largest / LARGEST_E4M3, 1.0).float()

    def nearest(self, weight: Tensor, scale: Tensor) -> Tensor:
        """The nearest of the numbers."""
        scaled = (weight / scale).clamp(-LARGEST_E4M3, LARGEST_E4M3)
        return scaled.float().to(E4M3).double()


class Fp8Linear(Quantized):
    """A linear layer with e4m3 weights, and e4m3 activations if the rule rounds them.

    weight: uint8 [outputs, groups, group], the bits of each number. output_scale: [outputs, groups,
    1]; with rounded activations there is one group, and the scale is that of the sums. values:
    [256], the number for each bit pattern, a table for levels that do not support the type.
    """

    values: Tensor

    def __init__(self, original: nn.Linear, rule: QuantizedLayer) -> None:
        super().__init__(original, rule)
        outputs, inputs = original.weight.shape
        group, scale = rule.group or inputs, self.output_scale
        self.weight = torch.zeros(
            outputs, inputs // group, group, dtype=torch.uint8, device=scale.device
        )
        self.output_scale = scale[:, None, None].repeat(1, inputs // group, 1)
        every = torch.arange(256, dtype=torch.uint8).view(E4M3).to(scale)
        # Two patterns are NaN; no weight has them.
        self.register_buffer("values", every.nan_to_num(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        numbers = self.values[self.weight.long()]
        if self.input_scale is None:
            return functional.linear(x, (numbers * self.output_scale).flatten(1), self.bias)
        sums = functional.linear(self.activations(x), numbers.flatten(1))
        y = sums * self.output_scale.flatten()
        return y if self.bias is None else y + self.bias

    def activations(self, x: Tensor) -> Tensor:
        """The activations as the layer multiplies them: numbers of e4m3, unless they are kept."""
        if self.input_scale is None:
            return x
        scaled = torch.clamp(x * self.input_scale, self.rule.lowest, self.rule.highest)
        unit = self.unit(scaled)
        return torch.round(scaled / unit) * unit

    def unit(self, scaled: Tensor) -> Tensor:
        """The distance of neighbouring numbers of e4m3 around each of these.

        It is plain arithmetic, for levels that do not support the type. A logarithm that is off by
        a rounding changes nothing: a number so near to a power of two becomes it with either unit.
        """
        exponent = torch.floor(torch.log2(torch.clamp(scaled.abs(), min=SMALLEST_NORMAL)))
        return torch.pow(2.0, exponent - MANTISSA_BITS)

    @torch.no_grad()
    def take(self, weight: Tensor, moments: Tensor | None = None) -> None:
        """Take the numbers of a weight [outputs, inputs], whose largest becomes e4m3's largest.
        moments: as of `rounded`."""
        numbers, scale = rounded(weight, E4m3Numbers(), self.weight.shape[2], moments)
        self.weight.copy_(numbers.to(E4M3).view(torch.uint8))
        self.output_scale.copy_(
            scale if self.input_scale is None else scale.double() / self.input_scale.double()
        )
