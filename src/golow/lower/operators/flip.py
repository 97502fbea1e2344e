"""A tensor with the order of some axes reversed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Flip(Operator, frozen=True, kw_only=True):
    """x with these axes reversed."""

    x: Ref
    axes: tuple[int, ...]

    @staticmethod
    def meaning(x: Tensor, axes: tuple[int, ...]) -> Tensor:
        return x.flip(tuple(axes))


def flip(call: Call) -> Flip | None:
    """``flip(self, dims)``."""
    rank = call.rank("self")
    if not rank:
        return None
    return Flip(x=call.ref("self"), axes=tuple(sorted(a % rank for a in call.integers("dims"))))


SPELLINGS = {"aten.flip.default": flip}
