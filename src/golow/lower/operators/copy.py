"""A copy, or an operation that returns its argument unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Copy(Operator, frozen=True, kw_only=True):
    """x. A pass drops it: without in-place operations a copy equals its source."""

    is_view = True

    x: Ref

    @staticmethod
    def meaning(x: Tensor) -> Tensor:
        return x.clone()


def copy(call: Call) -> Copy:
    """``clone``, ``contiguous``, ``detach``, ``alias``, ``lift_fresh_copy``."""
    return Copy(x=call.ref("self"))


def dropout(call: Call) -> Copy | None:
    """``dropout`` in inference."""
    return None if call.flag("train") else Copy(x=call.ref("input"))


SPELLINGS = {
    "aten.clone.default": copy,
    "aten.contiguous.default": copy,
    "aten.detach.default": copy,
    "aten.alias.default": copy,
    "aten.lift_fresh_copy.default": copy,
    "aten.dropout.default": dropout,
}
