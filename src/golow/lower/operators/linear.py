"""A linear layer, with fused bias, residual and activation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Linear(Operator, frozen=True, kw_only=True):
    """activation(x weight^T + bias + residual).

    x: [..., C]; weight: [K, C]; bias: [K]; residual: the result's shape, [..., K].
    """

    x: Ref
    weight: Ref
    bias: Ref | None = None
    residual: Ref | None = None
    activation: Activation | None = None

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        activation: Activation | None,
    ) -> Tensor:
        from torch.nn import functional

        y = functional.linear(x, weight, bias)
        return activated(y if residual is None else y + residual, activation)


def linear(call: Call) -> Linear:
    """``linear(input, weight, bias)``."""
    return Linear(x=call.ref("input"), weight=call.ref("weight"), bias=call.ref_or_none("bias"))


def with_bias_first(call: Call) -> Linear | None:
    """``addmm(bias, x, weight^T)``, the form of a linear layer in joint graphs."""
    weight = call.transposed("mat2")
    if (
        weight is None
        or call.rank("self") != 1
        or (call.number("beta"), call.number("alpha")) != (1, 1)
    ):
        return None
    return Linear(x=call.ref("mat1"), weight=weight, bias=call.ref("self"))


SPELLINGS = {"aten.linear.default": linear, "aten.addmm.default": with_bias_first}
