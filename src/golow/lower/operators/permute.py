"""A tensor with its axes in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Permute(Operator, frozen=True, kw_only=True):
    """x with its axis ``order[i]`` at position i."""

    is_view = True

    x: Ref
    order: tuple[int, ...]

    @staticmethod
    def meaning(x: Tensor, order: tuple[int, ...]) -> Tensor:
        return x.permute(tuple(order))


def permute(call: Call) -> Permute:
    """``permute(self, dims)``."""
    rank = call.rank("self")
    order = tuple(axis % rank for axis in call.integers("dims"))
    return Permute(x=call.ref("self"), order=order)


def transpose(call: Call) -> Permute:
    """``transpose(self, dim0, dim1)``."""
    return _swapped(call, call.axis("dim0"), call.axis("dim1"))


def transposed(call: Call) -> Permute:
    """``t(self)``, which leaves a vector alone."""
    return _swapped(call, 0, call.rank("self") - 1)


def _swapped(call: Call, one: int, other: int) -> Permute:
    exchanged = {one: other, other: one}
    order = tuple(exchanged.get(axis, axis) for axis in range(call.rank("self")))
    return Permute(x=call.ref("self"), order=order)


SPELLINGS = {
    "aten.permute.default": permute,
    "aten.transpose.int": transpose,
    "aten.t.default": transposed,
}
