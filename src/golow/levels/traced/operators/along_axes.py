"""Operators along axes: reductions, running sums, softmax, layer norm."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.layouts import image_axis
from golow.levels.traced.writer import Writer
from golow.lower.operators.cumulative_sum import CumulativeSum
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.softmax import Softmax


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
    value = writer.value(given.x)
    result = writer.dialect.reduced(
        given.function, x, axes, given.keep, value.dtype, len(value.shape)
    )
    writer.put(result, image=image and given.keep)


def running_sum(writer: Writer, given: CumulativeSum) -> None:
    """``x[0] + ... + x[i]``."""
    x, dtype = writer.plain(given.x), writer.value(given.x).dtype
    writer.put(writer.dialect.running_sum(x, given.axis, dtype, given.dtype))


def softmax(writer: Writer, given: Softmax) -> None:
    """softmax, or its logarithm."""
    name = "log_softmax" if given.log else "softmax"
    writer.put(f"{writer.dialect.nn}.{name}({writer.plain(given.x)}, axis={given.axis})")


def layer_norm(writer: Writer, given: LayerNorm) -> None:
    """The norm over the last axes."""
    dialect = writer.dialect
    x = writer.plain(given.x)
    axes = tuple(range(-given.axes, 0))
    weight, bias = (
        None if item is None else writer.plain(item) for item in (given.weight, given.bias)
    )
    shape = writer.value(given.x).shape[-given.axes :]
    own = dialect.layer_norm(x, shape, weight, bias, given.epsilon)
    if own is not None and writer.output(1) is None and writer.output(2) is None:
        writer.put(own)
        return
    mean = writer.line("row_mean", dialect.reduced("mean", x, axes, keep=True))
    centred = writer.line("centred", f"{x} - {mean}")
    squares = f"{dialect.module}.square({centred})"
    variance = dialect.reduced("mean", squares, axes, keep=True)
    inverse = writer.line("inverse", f"{dialect.rsqrt}({variance} + {given.epsilon!r})")
    result = f"{centred} * {inverse}"
    if weight is not None:
        result += f" * {weight}"
    if bias is not None:
        result += f" + {bias}"
    writer.put(result)
    writer.put(mean, index=1)
    writer.put(inverse, index=2)


IMPLEMENTATIONS = (
    Implementation(Reduce, reduce),
    Implementation(CumulativeSum, running_sum),
    Implementation(Softmax, softmax),
    Implementation(LayerNorm, layer_norm),
)
