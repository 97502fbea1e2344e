"""Sums and means over axes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from golow.lower.graph import Ref
from golow.lower.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.spelling import Call


class Reduce(Operator, frozen=True, kw_only=True):
    """The sum or mean of x over these axes, in ascending order. keep: they stay, with size 1."""

    function: Literal["sum", "mean"]
    x: Ref
    axes: tuple[int, ...]
    keep: bool

    @staticmethod
    def meaning(
        function: Literal["sum", "mean"], x: Tensor, axes: tuple[int, ...], keep: bool
    ) -> Tensor:
        if not axes:
            return x.clone()
        return x.sum(axes, keep) if function == "sum" else x.mean(axes, keep)


def over_axes(call: Call, function: Literal["sum", "mean"]) -> Reduce | None:
    """``sum`` and ``mean`` over some axes, or over all if none is named."""
    if not call.same_dtype("self"):
        return None
    return Reduce(
        function=function, x=call.ref("self"), axes=call.axes("dim"), keep=call.flag("keepdim")
    )


def over_all(call: Call, function: Literal["sum", "mean"]) -> Reduce | None:
    """``sum`` and ``mean`` over all axes."""
    if not call.same_dtype("self"):
        return None
    axes = tuple(range(call.rank("self")))
    return Reduce(function=function, x=call.ref("self"), axes=axes, keep=False)


SPELLINGS = {
    "aten.sum.dim_IntList": partial(over_axes, function="sum"),
    "aten.mean.dim": partial(over_axes, function="mean"),
    "aten.sum.default": partial(over_all, function="sum"),
    "aten.mean.default": partial(over_all, function="mean"),
}
