"""A tensor repeated along axes of size one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Expand(Operator, frozen=True, kw_only=True):
    """x expanded to this shape: repeated along axes of size one and along new axes."""

    is_view = True

    x: Ref
    shape: tuple[int, ...]

    @staticmethod
    def meaning(x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return x.expand(shape)


def expand(call: Call) -> Expand:
    """``expand(self, size)``."""
    return Expand(x=call.ref("self"), shape=call.output().shape)


SPELLINGS = {"aten.expand.default": expand, "aten.expand_as.default": expand}
