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
    dtype = writer.value(given.x).dtype
    result = writer.dialect.reduced(given.function, x, axes, given.keep, dtype)
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
    mean = writer.line("row_mean", dialect.reduced("mean", x, axes, keep=True))
    centred = writer.line("centred", f"{x} - {mean}")
    squares = f"{dialect.module}.square({centred})"
    variance = dialect.reduced("mean", squares, axes, keep=True)
    inverse = writer.line("inverse", f"{dialect.rsqrt}({variance} + {given.epsilon!r})")
    result = f"{centred} * {inverse}"
    if given.weight is not None:
        result += f" * {writer.plain(given.weight)}"
    if given.bias is not None:
        result += f" + {writer.plain(given.bias)}"
    writer.put(result)
    writer.put(mean, index=1)
    writer.put(inverse, index=2)


IMPLEMENTATIONS = (
    Implementation(Reduce, reduce),
    Implementation(CumulativeSum, running_sum),
    Implementation(Softmax, softmax),
    Implementation(LayerNorm, layer_norm),
)
