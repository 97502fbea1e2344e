"""Elements along an axis by an index for each of them, and the way back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Gather(Operator, frozen=True, kw_only=True):
    """y[i] = x[i with index[i] in place of i on the axis]; y has the shape of ``index``."""

    x: Ref
    index: Ref
    axis: int

    @staticmethod
    def meaning(x: Tensor, index: Tensor, axis: int) -> Tensor:
        return x.gather(axis, index)


class Scatter(Operator, frozen=True, kw_only=True):
    """x, with source[i] written to the place that `Gather` reads, or added to it. source: a value
    or a number. Without ``add``, no two indices may name the same place."""

    x: Ref
    index: Ref
    source: Ref | float
    axis: int
    add: bool

    @staticmethod
    def meaning(x: Tensor, index: Tensor, source: Tensor | float, axis: int, add: bool) -> Tensor:
        if isinstance(source, float):
            source = x.new_full(index.shape, source)
        return x.scatter_add(axis, index, source) if add else x.scatter(axis, index, source)


def gather(call: Call) -> Gather | None:
    """``gather(self, dim, index)``."""
    if not call.rank("self"):
        return None
    return Gather(x=call.ref("self"), index=call.ref("index"), axis=call.axis("dim"))


def scatter(call: Call, name: str, add: bool) -> Scatter | None:
    """``scatter`` and ``scatter_add``; not of truths, which a device cannot add."""
    if not call.rank("self") or call.value("self").dtype == "bool":
        return None
    source = call.given(name)
    return Scatter(
        x=call.ref("self"),
        index=call.ref("index"),
        source=source if isinstance(source, Ref) else call.number(name),
        axis=call.axis("dim"),
        add=add,
    )


SPELLINGS = {
    "aten.gather.default": gather,
    "aten.scatter.src": partial(scatter, name="src", add=False),
    "aten.scatter.value": partial(scatter, name="value", add=False),
    "aten.scatter_add.default": partial(scatter, name="src", add=True),
}
