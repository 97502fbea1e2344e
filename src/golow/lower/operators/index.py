"""Elements of a tensor by several index tensors at once, and writing or adding to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Argument, Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class Index(Operator, frozen=True, kw_only=True):
    """x[indices] as PyTorch and NumPy define it for integers; None keeps an axis whole. Indices may
    be negative."""

    x: Ref
    indices: tuple[Ref | None, ...]

    @staticmethod
    def meaning(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
        return x[_complete(indices)]


class IndexPut(Operator, frozen=True, kw_only=True):
    """x with x[indices] = values, or x[indices] += values if ``add``, where an element that several
    indices name gets the sum."""

    x: Ref
    indices: tuple[Ref | None, ...]
    values: Ref
    add: bool

    @staticmethod
    def meaning(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, add: bool) -> Tensor:
        import torch

        result: Tensor = torch.ops.aten.index_put.default(x, list(indices), values, add)
        return result


def _complete(indices: Sequence[Tensor | None]) -> tuple[Tensor | slice, ...]:
    return tuple(slice(None) if item is None else item for item in indices)


def index(call: Call) -> Index | None:
    """``index(self, indices)``, unless one is a mask, whose result has a data-dependent shape."""
    found = _indices(call)
    return None if found is None else Index(x=call.ref("self"), indices=found)


def index_put(call: Call) -> IndexPut | None:
    """``index_put(self, indices, values, accumulate)``."""
    found = _indices(call)
    if found is None:
        return None
    return IndexPut(
        x=call.ref("self"),
        indices=found,
        values=call.ref("values"),
        add=call.flag("accumulate"),
    )


def _indices(call: Call) -> tuple[Ref | None, ...] | None:
    items: Argument = call.given("indices")
    if not isinstance(items, tuple):
        return None
    found: list[Ref | None] = []
    for item in items:
        if not (item is None or isinstance(item, Ref)):
            return None
        if item is not None and call.dtype(item) == "bool":
            return None
        found.append(item)
    return tuple(found)


SPELLINGS = {
    "aten.index.Tensor": index,
    "aten._unsafe_index.Tensor": index,
    "aten.index_put.default": index_put,
    "aten._unsafe_index_put.default": index_put,
}
