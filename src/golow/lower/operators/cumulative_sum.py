"""Running sums along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class CumulativeSum(Operator, frozen=True, kw_only=True):
    """y[i] = x[0] + ... + x[i] along an axis, in this type."""

    x: Ref
    axis: int
    dtype: str

    @staticmethod
    def meaning(x: Tensor, axis: int, dtype: str) -> Tensor:
        import torch

        return x.cumsum(axis, dtype=getattr(torch, dtype))


def cumulative_sum(call: Call) -> CumulativeSum | None:
    """``cumsum(self, dim)``."""
    if not call.rank("self"):
        return None
    return CumulativeSum(x=call.ref("self"), axis=call.axis("dim"), dtype=call.output().dtype)


SPELLINGS = {"aten.cumsum.default": cumulative_sum}
