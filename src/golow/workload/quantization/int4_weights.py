"""Linear layers with 4-bit weights, in groups of inputs with one scale each."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.compensation import rounded
from golow.workload.quantization.quantized_layers import Quantized

LOWEST, HIGHEST = -8, 7
CLIPPING = tuple(1 - 0.05 * step for step in range(7))
"""Shares of the largest size in a group that are tried as its range: clipping one weight can make
all others finer."""


class FourBits:
    """Whole numbers from -8 to 7."""

    def scale_of(self, weight: Tensor) -> Tensor:
        """The scale of each group of weights, [..., group] -> [..., 1]: of the ranges that are
        tried, the one with the least squared error."""
        largest = weight.abs().amax(-1, keepdim=True)
        best, scales = torch.full_like(largest, torch.inf), torch.ones_like(largest).float()
        for share in CLIPPING:
            # A group of zeros has any scale.
            scale = torch.where(largest > 0, largest * share / HIGHEST, 1.0).float()
            error = self.nearest(weight, scale) * scale - weight
            squared = error.square().sum(-1, keepdim=True)
            scales = torch.where(squared < best, scale, scales)
            best = torch.minimum(squared, best)
        return scales

    def nearest(self, weight: Tensor, scale: Tensor) -> Tensor:
        """The nearest of the numbers."""
        return torch.round(weight / scale).clamp(LOWEST, HIGHEST)


class Int4Linear(Quantized):
    """A linear layer whose weights are whole numbers from -8 to 7.

    weight: uint8 [outputs, groups, group / 2], two numbers plus 8 in a byte: one of the first half
    of the group in the low four bits, one of the second half in the high ones. output_scale:
    [outputs, groups, 1]. The numbers become float32 by plain arithmetic, for levels without 4-bit
    types. zero: [outputs, groups, 1], subtracted from the numbers of a byte instead of 8, if the
    rule has zeros. order: [inputs], the inputs in the order of groups, if the rule is ordered.
    """

    zero: Tensor | None
    order: Tensor | None

    def __init__(self, original: nn.Linear, rule: QuantizedLayer) -> None:
        super().__init__(original, rule)
        outputs, inputs = original.weight.shape
        groups, scale = inputs // rule.group, self.output_scale
        self.weight = torch.zeros(
            outputs, groups, rule.group // 2, dtype=torch.uint8, device=scale.device
        )
        self.output_scale = scale[:, None, None].repeat(1, groups, 1)
        self.register_buffer("zero", 8 * torch.ones_like(self.output_scale) if rule.zeros else None)
        order = torch.arange(inputs, device=scale.device) if rule.ordered else None
        self.register_buffer("order", order)

    @property
    def numbers(self) -> int:
        """How many weights it has."""
        return 2 * self.weight.numel()

    def forward(self, x: Tensor) -> Tensor:
        """[..., inputs] -> [..., outputs]"""
        pairs = self.weight.to(x.dtype)
        high = torch.floor(pairs * 0.0625)
        numbers = torch.cat([pairs - high * 16, high], 2) - (8 if self.zero is None else self.zero)
        x = x if self.order is None else x[..., self.order]
        return functional.linear(x, (numbers * self.output_scale).flatten(1), self.bias)

    @torch.no_grad()
    def take(self, weight: Tensor, moments: Tensor | None = None) -> None:
        """Take the numbers of a weight [outputs, inputs]. moments: as of `rounded`."""
        numbers, scale = rounded(weight, FourBits(), self.rule.group, moments)
        self.weight.copy_(in_pairs((numbers + 8).to(torch.uint8)))
        self.output_scale.copy_(scale)


def in_pairs(numbers: Tensor) -> Tensor:
    """The bytes of numbers from 0 to 15: uint8 [outputs, groups, group] -> [..., group / 2]."""
    low, high = numbers.chunk(2, 2)
    return low + 16 * high
