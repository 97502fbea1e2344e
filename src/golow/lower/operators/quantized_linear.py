"""A linear layer of numbers of 8 bits, with fused scale, bias, residual, activation and
rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated
from golow.lower.operators.quantize import E4M3, Quantize

if TYPE_CHECKING:
    from torch import Tensor


class QuantizedLinear(Operator, frozen=True, kw_only=True):
    """activation((x weight^T) * scale + bias + residual). The sums are exact.

    x: int8, uint8 or e4m3 [..., C]. weight: int8 [K, C]; for an x of e4m3, uint8 [K, 1, C], the
    bits of numbers of e4m3. scale: [K], or [K, 1, 1]; bias: [K]; residual: the result's shape,
    [..., K]. result_scale: one number; the result is then that of `Quantize` with it and
    ``result_type``.
    """

    x: Ref
    weight: Ref
    scale: Ref
    bias: Ref | None = None
    residual: Ref | None = None
    activation: Activation | None = None
    result_scale: Ref | None = None
    result_type: str = "float32"

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        scale: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        activation: Activation | None,
        result_scale: Tensor | None,
        result_type: str,
    ) -> Tensor:
        import torch
        from torch.nn import functional

        numbers = weight.view(getattr(torch, E4M3)) if weight.dtype == torch.uint8 else weight
        sums = functional.linear(x.double(), numbers.double().flatten(1))
        y = sums * scale.double().flatten()
        y = (y if bias is None else y + bias.double()).to(scale.dtype)
        y = activated(y if residual is None else y + residual, activation)
        return y if result_scale is None else Quantize.meaning(y, result_scale, result_type)
