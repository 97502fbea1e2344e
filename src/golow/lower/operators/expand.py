"""A tensor repeated along axes of one element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.graph import Ref
from golow.lower.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.spelling import Call


class Expand(Operator, frozen=True, kw_only=True):
    """x in this shape, repeated along axes where it has one element or that it lacks."""

    x: Ref
    shape: tuple[int, ...]

    @staticmethod
    def meaning(x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return x.expand(shape)


def expand(call: Call) -> Expand:
    """``expand(self, size)``."""
    return Expand(x=call.ref("self"), shape=call.output().shape)


SPELLINGS = {"aten.expand.default": expand}
