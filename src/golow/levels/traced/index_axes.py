"""Where the axes of several index tensors stand in what ``x[indices]`` gives, as in PyTorch."""

from __future__ import annotations

from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.index import IndexPut

Order = tuple[int, ...]
Indices = tuple[Ref | None, ...]


def indexed(given: Indices) -> list[int]:
    """The axes that have an index."""
    return [axis for axis, item in enumerate(given) if item is not None]


def shape_of(writer: Writer, given: Indices) -> tuple[int, ...]:
    """The shape of all indices together."""
    import numpy as np

    shapes = [writer.value(item).shape for item in given if item is not None]
    return tuple(np.broadcast_shapes(*shapes))


def to_front(rank: int, axes: list[int]) -> tuple[Order | None, Order]:
    """The order that has these axes first, None if they are, and the way back."""
    order = (*axes, *(axis for axis in range(rank) if axis not in axes))
    back = tuple(order.index(axis) for axis in range(rank))
    return (None if order == tuple(range(rank)) else order), back


def from_front(writer: Writer, given: Indices, rank: int) -> Order | None:
    """The order that brings the indices' axes from the front to where PyTorch has them: to the
    first index's place if the indices stand side by side; None if they stay in front."""
    axes = indexed(given)
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    if not adjacent or axes[0] == 0:
        return None
    new, before, rest = len(shape_of(writer, given)), axes[0], rank - len(axes)
    return (*range(new, new + before), *range(new), *range(new + before, new + rest))


def values_in_front(writer: Writer, given: IndexPut) -> str:
    """The values in the shape of ``x[indices]``, with the axes of the indices first."""
    dialect, shape, axes = writer.dialect, writer.value(given.x).shape, indexed(given.indices)
    rest = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    back = from_front(writer, given.indices, len(shape))
    wanted = (*shape_of(writer, given.indices), *rest)
    values = writer.plain(given.values)
    if back is None:
        return f"{dialect.module}.broadcast_to({values}, {wanted})"
    whole = tuple(wanted[place] for place in back)
    front = tuple(back.index(place) for place in range(len(back)))
    return dialect.transposed(f"{dialect.module}.broadcast_to({values}, {whole})", front)
