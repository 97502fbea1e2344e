"""Sorting, and where the largest or smallest element is."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.sort import ArgReduce, Sort


def sort(writer: Writer, given: Sort) -> None:
    """The elements in order, and where each was."""
    x = writer.plain(given.x)
    # Along the last axis, where an index names the elements of a row.
    order = _last(len(writer.value(given.x).shape), given.axis)
    moved = x if order is None else writer.line("moved", f"tf.transpose({x}, {order})")
    direction = ', direction="DESCENDING"' if given.descending else ""
    keys = _sortable(writer, given.x, moved)
    places = writer.line("places", f"tf.argsort({keys}, stable=True{direction})")
    batch = len(writer.value(given.x).shape) - 1
    found = [f"tf.gather({moved}, {places}, batch_dims={batch})", f"tf.cast({places}, tf.int64)"]
    for index, text in enumerate(found):
        # The order changes places of two axes, so that it is also the way back.
        writer.put(text if order is None else f"tf.transpose({text}, {order})", index=index)


def place(writer: Writer, given: ArgReduce) -> None:
    """Where the largest or smallest element is."""
    name = "argmax" if given.function == "maximum" else "argmin"
    x = _sortable(writer, given.x, writer.plain(given.x))
    found = f"tf.{name}({x}, axis={given.axis})"
    writer.put(f"tf.expand_dims({found}, {given.axis})" if given.keep else found)


def _sortable(writer: Writer, given: Ref, text: str) -> str:
    """Truth values have no order in TensorFlow."""
    return f"tf.cast({text}, tf.int32)" if writer.value(given).dtype == "bool" else text


def _last(rank: int, axis: int) -> tuple[int, ...] | None:
    """The order of axes with this one and the last exchanged; None if it is the last."""
    if axis == rank - 1:
        return None
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]
    return tuple(order)


IMPLEMENTATIONS = (Implementation(Sort, sort), Implementation(ArgReduce, place))
