"""A linear layer whose weight alone is narrower than float32, whole numbers of 8 or 4 bits or bf16,
with fused bias, residual and activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated

if TYPE_CHECKING:
    from torch import Tensor


class NarrowLinear(Operator, frozen=True, kw_only=True):
    """activation(x (weight * scale)^T + bias + residual).

    x: [..., C]. weight: bf16 [K, C] without a scale; int8 [K, C] with scale [K, 1]; or uint8 [K, G,
    C / G / 2], two numbers plus 8 in a byte, the first half of each of G groups in the low four
    bits, with scale [K, G, 1]. bias: [K]; residual: the result's shape, [..., K].
    """

    x: Ref
    weight: Ref
    scale: Ref | None = None
    bias: Ref | None = None
    residual: Ref | None = None
    activation: Activation | None = None

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        scale: Tensor | None,
        bias: Tensor | None,
        residual: Tensor | None,
        activation: Activation | None,
    ) -> Tensor:
        import torch
        from torch.nn import functional

        numbers = weight.to(x.dtype)
        if weight.dtype == torch.uint8:
            high = torch.floor(numbers * 0.0625)
            numbers = torch.cat([numbers - high * 16, high], 2) - 8
        wide = numbers if scale is None else (numbers * scale).flatten(1)
        y = functional.linear(x, wide, bias)
        return activated(y if residual is None else y + residual, activation)
