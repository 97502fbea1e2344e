"""A linear layer of whole numbers of 8 bits, with fused scale, bias, residual and activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated

if TYPE_CHECKING:
    from torch import Tensor


class QuantizedLinear(Operator, frozen=True, kw_only=True):
    """activation((x weight^T) * scale + bias + residual). The sums are exact.

    x: int8 or uint8 [..., C]; weight: int8 [K, C]; scale and bias: [K]; residual: the result's
    shape, [..., K].
    """

    x: Ref
    weight: Ref
    scale: Ref
    bias: Ref | None = None
    residual: Ref | None = None
    activation: Activation | None = None

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        scale: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        activation: Activation | None,
    ) -> Tensor:
        from torch.nn import functional

        y = functional.linear(x.double(), weight.double()) * scale.double()
        y = (y if bias is None else y + bias.double()).to(scale.dtype)
        return activated(y if residual is None else y + residual, activation)
