"""Sums, means, products and extremes over axes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


Function = Literal["sum", "mean", "maximum", "minimum", "product"]


class Reduce(Operator, frozen=True, kw_only=True):
    """The sum, mean, largest or smallest element or product of x over these axes, in ascending
    order. keep: they stay, with size 1."""

    function: Function
    x: Ref
    axes: tuple[int, ...]
    keep: bool

    @staticmethod
    def meaning(function: Function, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        if not axes:
            return x.clone()
        if function == "product":
            for axis in reversed(axes):
                x = x.prod(axis, keep)
            return x
        names = {"maximum": "amax", "minimum": "amin"}
        result: Tensor = getattr(x, names.get(function, function))(tuple(axes), keep)
        return result


def over_axes(call: Call, function: Function) -> Reduce | None:
    """``sum`` and ``mean`` over some axes, or over all if none is named."""
    if not call.same_dtype("self"):
        return None
    return Reduce(
        function=function, x=call.ref("self"), axes=call.axes("dim"), keep=call.flag("keepdim")
    )


def over_all(call: Call, function: Function) -> Reduce | None:
    """``sum`` and ``mean`` over all axes."""
    if not call.same_dtype("self"):
        return None
    axes = tuple(range(call.rank("self")))
    return Reduce(function=function, x=call.ref("self"), axes=axes, keep=False)


def over_one(call: Call) -> Reduce | None:
    """``prod`` over one axis."""
    if not call.same_dtype("self") or not call.rank("self"):
        return None
    axes = (call.axis("dim"),)
    return Reduce(function="product", x=call.ref("self"), axes=axes, keep=call.flag("keepdim"))


SPELLINGS = {
    "aten.sum.dim_IntList": partial(over_axes, function="sum"),
    "aten.mean.dim": partial(over_axes, function="mean"),
    "aten.sum.default": partial(over_all, function="sum"),
    "aten.mean.default": partial(over_all, function="mean"),
    "aten.amax.default": partial(over_axes, function="maximum"),
    "aten.amin.default": partial(over_axes, function="minimum"),
    "aten.max.default": partial(over_all, function="maximum"),
    "aten.min.default": partial(over_all, function="minimum"),
    "aten.prod.default": partial(over_all, function="product"),
    "aten.prod.dim_int": over_one,
}
