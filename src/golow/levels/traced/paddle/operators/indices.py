"""Operators that read or write elements by their index."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.index_axes import indexed, to_front, values_in_front
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.gather import Gather, Scatter
from golow.lower.operators.index import Index, IndexPut
from golow.lower.operators.take import Take


def take(writer: Writer, given: Take) -> None:
    """x at these indices along an axis: the rows of a table by `F.embedding`."""
    x, index = writer.plain(given.x), writer.plain(given.index)
    value, output = writer.value(given.x), writer.output()
    if given.axis == 0 and len(value.shape) == 2 and value.dtype == "float32":
        writer.put(f"F.embedding({index}, {x})")
        return
    flat = len(writer.value(given.index).shape) == 1
    row = index if flat else writer.dialect.reshaped(index, (-1,))
    found = f"paddle.index_select({x}, {row}, axis={given.axis})"
    assert output is not None  # noqa: S101
    writer.put(found if flat else writer.dialect.reshaped(found, output.shape))


def gather(writer: Writer, given: Gather) -> None:
    """x where the index names the place on one axis."""
    x, index = writer.plain(given.x), writer.plain(given.index)
    writer.put(f"paddle.take_along_axis({x}, {index}, {given.axis}, broadcast=False)")


def scatter(writer: Writer, given: Scatter) -> None:
    """x with elements written or added where `gather` reads."""
    shape, x = writer.value(given.index).shape, writer.value(given.x)
    if isinstance(given.source, Ref):  # it may be larger than the index
        parts = ", ".join(f":{size}" for size in shape)
        source = f"{writer.plain(given.source)}[{parts}]"
    else:
        source = writer.dialect.filled(shape, given.source, x.dtype)
    arguments = f"{writer.plain(given.x)}, {writer.plain(given.index)}, {source}, {given.axis}"
    verb = "add" if given.add else "assign"
    writer.put(f'paddle.put_along_axis({arguments}, reduce="{verb}", broadcast=False)')


def index(writer: Writer, given: Index) -> None:
    """``x[indices]``."""
    parts = (":" if item is None else writer.plain(item) for item in given.indices)
    writer.put(f"{writer.plain(given.x)}[{', '.join(parts)}]")


def index_put(writer: Writer, given: IndexPut) -> None:
    """``x[indices] = values``, or ``+=``: Paddle's has the axes of the indices first."""
    axes, x = indexed(given.indices), writer.plain(given.x)
    first, back = to_front(len(writer.value(given.x).shape), axes)
    moved = x if first is None else writer.dialect.transposed(x, first)
    named = ", ".join(writer.plain(item) for item in given.indices if item is not None)
    values = values_in_front(writer, given)
    written = f"paddle.index_put({moved}, ({named},), {values}, accumulate={given.add})"
    writer.put(written if first is None else writer.dialect.transposed(written, back))


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(Gather, gather),
    Implementation(Scatter, scatter),
    Implementation(Index, index),
    Implementation(IndexPut, index_put),
)
