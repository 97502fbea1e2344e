"""Elements of an axis in order, and the position of the largest or smallest."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Sort(Operator, frozen=True, kw_only=True):
    """x sorted along an axis, and where each element was. Equal elements keep their order."""

    x: Ref
    axis: int
    descending: bool

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(x: Tensor, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
        values, places = x.sort(dim=axis, descending=descending, stable=True)
        return values, places


class ArgReduce(Operator, frozen=True, kw_only=True):
    """Where the largest or smallest element of an axis is: the first of several. keep: the axis
    stays, with size 1."""

    function: Literal["maximum", "minimum"]
    x: Ref
    axis: int
    keep: bool

    @staticmethod
    def meaning(
        function: Literal["maximum", "minimum"], x: Tensor, axis: int, keep: bool
    ) -> Tensor:
        import torch

        x = x.byte() if x.dtype == torch.bool else x  # which PyTorch refuses
        return x.argmax(axis, keep) if function == "maximum" else x.argmin(axis, keep)


def sort(call: Call) -> Sort | None:
    """``sort(self, dim, descending)``."""
    if not call.rank("self"):
        return None
    return Sort(x=call.ref("self"), axis=call.axis("dim"), descending=call.flag("descending"))


def place(call: Call, function: Literal["maximum", "minimum"]) -> ArgReduce | None:
    """``argmax`` and ``argmin`` over one axis."""
    if call.given("dim") is None or not call.rank("self"):
        return None
    return ArgReduce(
        function=function, x=call.ref("self"), axis=call.axis("dim"), keep=call.flag("keepdim")
    )


SPELLINGS = {
    "aten.sort.default": sort,
    "aten.sort.stable": sort,
    "aten.argmax.default": partial(place, function="maximum"),
    "aten.argmin.default": partial(place, function="minimum"),
}
