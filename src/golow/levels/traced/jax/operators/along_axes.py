"""What runs along axes: reductions, running sums, softmax, layer norm, sorting."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.writer import DTYPES, Writer
from golow.levels.traced.writer import image_axis
from golow.lower.operators.cumulative_sum import CumulativeSum
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.softmax import Softmax
from golow.lower.operators.sort import ArgReduce, Sort

REDUCTIONS = {
    "sum": "sum",
    "mean": "mean",
    "maximum": "max",
    "minimum": "min",
    "product": "prod",
}


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
    result = f"jnp.{REDUCTIONS[given.function]}({x}, axis={axes}{keep})"
    writer.put(result, image=image and given.keep)


def running_sum(writer: Writer, given: CumulativeSum) -> None:
    """``x[0] + ... + x[i]``."""
    dtype = DTYPES[given.dtype]
    writer.put(f"jnp.cumsum({writer.plain(given.x)}, axis={given.axis}, dtype={dtype})")


def softmax(writer: Writer, given: Softmax) -> None:
    """softmax, or its logarithm."""
    name = "log_softmax" if given.log else "softmax"
    writer.put(f"jax.nn.{name}({writer.plain(given.x)}, axis={given.axis})")


def layer_norm(writer: Writer, given: LayerNorm) -> None:
    """The norm over the last axes."""
    x = writer.plain(given.x)
    axes = tuple(range(-given.axes, 0))
    mean = writer.line("row_mean", f"jnp.mean({x}, axis={axes}, keepdims=True)")
    centred = writer.line("centred", f"{x} - {mean}")
    variance = f"jnp.mean(jnp.square({centred}), axis={axes}, keepdims=True)"
    inverse = writer.line("inverse", f"lax.rsqrt({variance} + {given.epsilon!r})")
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
    further = ", descending=True" if given.descending else ""
    order = writer.line("order", f"jnp.argsort({x}, axis={given.axis}, stable=True{further})")
    writer.put(f"jnp.take_along_axis({x}, {order}, axis={given.axis})")
    writer.put(order, index=1)


def place(writer: Writer, given: ArgReduce) -> None:
    """Where the largest or smallest element is."""
    name = "argmax" if given.function == "maximum" else "argmin"
    keep = ", keepdims=True" if given.keep else ""
    writer.put(f"jnp.{name}({writer.plain(given.x)}, axis={given.axis}{keep})")


IMPLEMENTATIONS = (
    Implementation(Reduce, reduce),
    Implementation(CumulativeSum, running_sum),
    Implementation(Softmax, softmax),
    Implementation(LayerNorm, layer_norm),
    Implementation(Sort, sort),
    Implementation(ArgReduce, place),
)
