"""Vectors divided by their length, as `torch.nn.functional.normalize` does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class UnitNorm(Operator, frozen=True, kw_only=True):
    """x / max(sqrt(sum(x^2)), epsilon) * factor over the last axis. Only a pass makes these
    (`golow.lower.recognise.unit_norm`). factor: None, or a number for each index of one other axis
    at most; it has the axes of x, all others of size 1."""

    x: Ref
    factor: Ref | None
    epsilon: float

    @staticmethod
    def meaning(x: Tensor, factor: Tensor | None, epsilon: float) -> Tensor:
        length = (x * x).sum(-1, keepdim=True).sqrt().clamp_min(epsilon)
        return x / length if factor is None else x / length * factor
