"""Linear layers with 8-bit floating-point weights: e4m3, with 4 exponent bits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.quantized_layers import Quantized

E4M3 = torch.float8_e4m3fn
LARGEST = torch.finfo(E4M3).max


class Fp8Linear(Quantized):
    """A linear layer with e4m3 weights.

    weight: uint8 [outputs, groups, group], the bits of each number. output_scale: [outputs, groups,
    1]. values: [256], the number for each bit pattern, a table for levels that do not support the
    type.
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
        wide = self.values[self.weight.long()] * self.output_scale
        return functional.linear(x, wide.flatten(1), self.bias)

    @torch.no_grad()
    def take(self, weight: Tensor) -> None:
        """Set the numbers from a weight [outputs, inputs], whose largest becomes e4m3's largest."""
        wide = weight.double().reshape(self.weight.shape)
        largest = wide.abs().amax(2, keepdim=True)
        # Any scale is right for a group of zeros.
        scale = torch.where(largest > 0, largest / LARGEST, 1.0).float()
        self.weight.copy_((wide / scale).float().to(E4M3).view(torch.uint8))
        self.output_scale.copy_(scale)
