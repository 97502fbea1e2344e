"""Operators that read or write elements by their index."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.index_axes import (
    from_front,
    indexed,
    shape_of,
    to_front,
    values_in_front,
)
from golow.levels.traced.tensorflow.dialect import TENSORFLOW
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.gather import Gather, Scatter
from golow.lower.operators.index import Index, IndexPut
from golow.lower.operators.take import Take


def take(writer: Writer, given: Take) -> None:
    """x at these indices along an axis."""
    x, index = writer.plain(given.x), writer.plain(given.index)
    writer.put(f"tf.gather({x}, {index}, axis={given.axis})")


def gather(writer: Writer, given: Gather) -> None:
    """x where the index names the place on one axis."""
    x, places = writer.plain(given.x), _places(writer, given.index, given.axis)
    writer.put(f"tf.gather_nd({x}, {places})")


def scatter(writer: Writer, given: Scatter) -> None:
    """x with elements written or added where `gather` reads."""
    verb = "add" if given.add else "update"
    shape, x = writer.value(given.index).shape, writer.value(given.x)
    if isinstance(given.source, Ref):  # it may be larger than the index
        parts = ", ".join(f":{size}" for size in shape)
        text = f"{writer.plain(given.source)}[{parts}]"
    else:
        text = TENSORFLOW.filled(shape, given.source, x.dtype)
    places = _places(writer, given.index, given.axis)
    writer.put(f"tf.tensor_scatter_nd_{verb}({writer.plain(given.x)}, {places}, {text})")


def index(writer: Writer, given: Index) -> None:
    """``x[indices]``."""
    axes = indexed(given.indices)
    x, shape = writer.plain(given.x), writer.value(given.x).shape
    if len(axes) == 1:
        [axis] = axes
        named = given.indices[axis]
        assert named is not None  # noqa: S101
        writer.put(f"tf.gather({x}, {_from_start(writer, named, shape[axis])}, axis={axis})")
        return
    first, _ = to_front(len(shape), axes)
    moved = x if first is None else f"tf.transpose({x}, {first})"
    found = f"tf.gather_nd({moved}, {_stacked(writer, given.x, given.indices, axes)})"
    back = from_front(writer, given.indices, len(shape))
    writer.put(found if back is None else f"tf.transpose({found}, {back})")


def index_put(writer: Writer, given: IndexPut) -> None:
    """``x[indices] = values``, or ``+=``."""
    verb = "add" if given.add else "update"
    axes = indexed(given.indices)
    x, shape = writer.plain(given.x), writer.value(given.x).shape
    first, order = to_front(len(shape), axes)
    moved = x if first is None else f"tf.transpose({x}, {first})"
    places = _stacked(writer, given.x, given.indices, axes)
    values = values_in_front(writer, given)
    written = f"tf.tensor_scatter_nd_{verb}({moved}, {places}, {values})"
    writer.put(written if first is None else f"tf.transpose({written}, {order})")


def _stacked(writer: Writer, x: Ref, given: tuple[Ref | None, ...], axes: list[int]) -> str:
    """The indices as the rows that `tf.gather_nd` takes."""
    shape, named = writer.value(x).shape, shape_of(writer, given)
    parts = []
    for axis in axes:
        item = given[axis]
        assert item is not None  # noqa: S101
        text = _from_start(writer, item, shape[axis])
        dtype = writer.value(item).dtype
        text = TENSORFLOW.cast(text, dtype, "int64")
        same = tuple(writer.value(item).shape) == named
        parts.append(text if same else f"tf.broadcast_to({text}, {named})")
    return writer.line("places", f"tf.stack([{', '.join(parts)}], axis=-1)")


def _from_start(writer: Writer, index: Ref, size: int) -> str:
    """An index of an axis of that size, which may be negative: TensorFlow knows no such index."""
    name = f"{writer.identifier(index.name)}_from_start"
    return writer.line(name, f"tf.math.floormod({writer.plain(index)}, {size})")


def _places(writer: Writer, index: Ref, axis: int) -> str:
    """An index for every axis: the given one, and each place of the others."""
    shape = tuple(writer.value(index).shape)
    text = TENSORFLOW.cast(writer.plain(index), writer.value(index).dtype, "int64")
    counts = ", ".join(f"tf.range({size}, dtype=tf.int64)" for size in shape)
    if len(shape) == 1:
        return writer.line("places", f"tf.expand_dims({text}, -1)")
    grid = writer.line("grid", f'tf.meshgrid({counts}, indexing="ij")')
    parts = ", ".join(text if place == axis else f"{grid}[{place}]" for place in range(len(shape)))
    return writer.line("places", f"tf.stack([{parts}], axis=-1)")


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(Gather, gather),
    Implementation(Scatter, scatter),
    Implementation(Index, index),
    Implementation(IndexPut, index_put),
)
