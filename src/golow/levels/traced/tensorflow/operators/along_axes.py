"""What runs along axes: reductions, running sums, softmax, layer norm, sorting."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.tensorflow.writer import Writer
from golow.levels.traced.writer import image_axis
from golow.lower.ir.graph import Ref
from golow.lower.operators.cumulative_sum import CumulativeSum
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.softmax import Softmax
from golow.lower.operators.sort import ArgReduce, Sort

REDUCTIONS = {
    "sum": "tf.reduce_sum",
    "mean": "tf.reduce_mean",
    "maximum": "tf.reduce_max",
    "minimum": "tf.reduce_min",
    "product": "tf.reduce_prod",
}
TRUTHS = {"maximum": "tf.reduce_any", "minimum": "tf.reduce_all"}


def reduce(writer: Writer, given: Reduce) -> None:
    """One number for each place outside of these axes."""
    axes = tuple(given.axes)
    if not axes:
        writer.put(writer.plain(given.x))
        return
    # The rest of an image keeps its order if its channels are the last that is left, or gone.
    image = writer.is_image(given.x) and (given.keep or 1 in axes or {2, 3} <= set(axes))
    x = writer.image(given.x) if image else writer.plain(given.x)
    if image:
        axes = tuple(sorted(map(image_axis, axes)))
    keep = ", keepdims=True" if given.keep else ""
    truths = writer.value(given.x).dtype == "bool"
    function = (TRUTHS if truths else REDUCTIONS)[given.function]
    writer.put(f"{function}({x}, axis={axes}{keep})", image=image and given.keep)


def running_sum(writer: Writer, given: CumulativeSum) -> None:
    """``x[0] + ... + x[i]``."""
    x = writer.cast(writer.plain(given.x), writer.value(given.x).dtype, given.dtype)
    writer.put(f"tf.cumsum({x}, axis={given.axis})")


def softmax(writer: Writer, given: Softmax) -> None:
    """softmax, or its logarithm."""
    name = "log_softmax" if given.log else "softmax"
    writer.put(f"tf.nn.{name}({writer.plain(given.x)}, axis={given.axis})")


def layer_norm(writer: Writer, given: LayerNorm) -> None:
    """The norm over the last axes."""
    x = writer.plain(given.x)
    axes = tuple(range(-given.axes, 0))
    mean = writer.line("row_mean", f"tf.reduce_mean({x}, axis={axes}, keepdims=True)")
    centred = writer.line("centred", f"{x} - {mean}")
    variance = f"tf.reduce_mean(tf.square({centred}), axis={axes}, keepdims=True)"
    inverse = writer.line("inverse", f"tf.math.rsqrt({variance} + {given.epsilon!r})")
    result = f"{centred} * {inverse}"
    if given.weight is not None:
        result += f" * {writer.plain(given.weight)}"
    if given.bias is not None:
        result += f" + {writer.plain(given.bias)}"
    writer.put(result)
    writer.put(mean, index=1)
    writer.put(inverse, index=2)


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


IMPLEMENTATIONS = (
    Implementation(Reduce, reduce),
    Implementation(CumulativeSum, running_sum),
    Implementation(Softmax, softmax),
    Implementation(LayerNorm, layer_norm),
    Implementation(Sort, sort),
    Implementation(ArgReduce, place),
)
