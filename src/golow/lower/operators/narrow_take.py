"""Rows of a table that is narrower than float32, by their indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class NarrowTake(Operator, frozen=True, kw_only=True):
    """The rows of x, bf16 [N, C], at these indices as float32, [..., C]. Indices are integers from
    0 to below N."""

    x: Ref
    index: Ref

    @staticmethod
    def meaning(x: Tensor, index: Tensor) -> Tensor:
        return x[index].float()
