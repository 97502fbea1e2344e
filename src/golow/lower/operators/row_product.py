"""A linear layer of a few rows, with what stands before and after it. The time of such a product is
that of reading its weight; whatever else it does is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import activated

if TYPE_CHECKING:
    from torch import Tensor


class RowProduct(Operator, frozen=True, kw_only=True):
    """activation(n(x) weight^T + bias + residual). Only a pass makes these
    (`golow.lower.fuse.row_products`).

    n: nothing if ``epsilon`` is None, else x / sqrt(mean(x^2) + epsilon) * norm over the last axis.
    x: [..., C]; weight: [K, C]; norm: [C] or None; bias: [K] or None. gated: the first half of the
    columns goes through the activation and is multiplied by the second one: the result is [..., K /
    2], and there is no residual. Otherwise it is [..., K], as the residual, or None.
    """

    x: Ref
    weight: Ref
    norm: Ref | None
    bias: Ref | None
    residual: Ref | None
    epsilon: float | None
    activation: Activation | None
    gated: bool

    @staticmethod
    def meaning(
        x: Tensor,
        weight: Tensor,
        norm: Tensor | None,
        bias: Tensor | None,
        residual: Tensor | None,
        epsilon: float | None,
        activation: Activation | None,
        gated: bool,
    ) -> Tensor:
        import torch
        from torch.nn import functional

        if epsilon is not None:
            x = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)
            x = x if norm is None else x * norm
        y = functional.linear(x, weight, bias)
        if gated:
            gate, value = y.chunk(2, -1)
            return activated(gate, activation) * value
        return activated(y if residual is None else y + residual, activation)
