"""A tensor whose elements are shifted around along some axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class Roll(Operator, frozen=True, kw_only=True):
    """Along each of the axes, the element at ``i`` is x's at ``i + start``, and at the end of the
    axis x's first ones follow. axes: in ascending order; starts: from 1 to below the size."""

    x: Ref
    axes: tuple[int, ...]
    starts: tuple[int, ...]

    @staticmethod
    def meaning(x: Tensor, axes: tuple[int, ...], starts: tuple[int, ...]) -> Tensor:
        return x.roll([-start for start in starts], tuple(axes))
