"""Reshape: equal elements in another shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Reshape(Operator, frozen=True, kw_only=True):
    """x in another shape, with its elements in the same order."""

    is_view = True

    x: Ref
    shape: tuple[int, ...]

    @staticmethod
    def meaning(x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return x.reshape(tuple(shape))


def reshape(call: Call) -> Reshape:
    """``view``, ``reshape``, ``flatten``, ``squeeze`` and ``unsqueeze``: the result's shape is
    enough. A view of a permuted tensor may become a copy; no level can tell the difference."""
    return Reshape(x=call.ref("self"), shape=call.output().shape)


SPELLINGS = {
    f"aten.{name}": reshape
    for name in (
        "view.default",
        "_unsafe_view.default",
        "reshape.default",
        "flatten.using_ints",
        "unflatten.int",
        "squeeze.default",
        "squeeze.dim",
        "squeeze.dims",
        "unsqueeze.default",
        "view_as.default",
    )
}
