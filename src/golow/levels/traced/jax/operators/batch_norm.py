"""Batch norm, with the batch's own statistics or with given ones."""

from __future__ import annotations

import math

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.operators.activation import activated
from golow.levels.traced.refusals import refuse_residual
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.batch_norm import BatchNorm, BatchNormInference


def inference(writer: Writer, given: BatchNormInference) -> None:
    """``(x - mean) * (scale / sqrt(variance + epsilon)) + shift``."""
    x, image, spread = _argument(writer, given.x)
    factor = f"lax.rsqrt({writer.plain(given.variance)} + {given.epsilon!r})"
    if given.scale is not None:
        factor = f"{factor} * {writer.plain(given.scale)}"
    result = f"({x} - {spread(writer.plain(given.mean))}) * {spread(f'({factor})')}"
    writer.put(result + _shift(writer, given.shift, spread), image)


def training(writer: Writer, given: BatchNorm) -> None:
    """Batch norm with mean and variance of the batch, which also update the running ones.

    One pass over the numbers gives both sums, as in Flax's batch norm; here of distances to the
    first number of each channel, so that a large mean takes no digits from the variance.
    """
    x, image, spread = _argument(writer, given.x)
    shape = writer.value(given.x).shape
    axes = (0, 1, 2) if image else (0, *range(2, len(shape)))
    count = math.prod(shape) // shape[1]
    first = ("0, 0, 0",) if image else ("0", ":", *("0" for _ in shape[2:]))
    pivot = writer.line("pivot", f"lax.stop_gradient({x}[{', '.join(first)}])")
    distance = writer.line("distance", f"{x} - {spread(pivot)}")
    offset = writer.line("offset", f"jnp.mean({distance}, axis={axes})")
    squares = f"jnp.mean(jnp.square({distance}), axis={axes})"
    variance = writer.line("batch_variance", f"jnp.maximum({squares} - jnp.square({offset}), 0)")
    mean = writer.line("batch_mean", f"{pivot} + {offset}")
    inverse = writer.line("inverse", f"lax.rsqrt({variance} + {given.epsilon!r})")
    factor = inverse if given.scale is None else f"({inverse} * {writer.plain(given.scale)})"
    centred = writer.line("centred", f"{distance} - {spread(offset)}")
    result = f"{centred} * {spread(factor)}" + _shift(writer, given.shift, spread)
    writer.put(activated(writer, result, given.activation, "normed"), image)
    writer.put(mean, index=1)
    writer.put(inverse, index=2)
    for index, running, new in (
        (3, given.running_mean, mean),
        (4, given.running_variance, f"{variance} * {count / max(count - 1, 1)!r}"),
    ):
        kept, moved = repr(1 - given.momentum), repr(given.momentum)
        writer.put(f"{kept} * {writer.plain(running)} + {moved} * {new}", index=index)


def _argument(writer: Writer, given: Ref):  # type: ignore[no-untyped-def]
    """The argument, whether it is an image, and what makes values [C] broadcast with it."""
    rank = len(writer.value(given).shape)
    if rank == 4:
        return writer.image(given), True, lambda text: text
    ones = ", 1" * (rank - 2)
    shape = f"(1, -1{ones})"
    return writer.plain(given), False, lambda text: f"{text}.reshape{shape}" if ones else text


def _shift(writer: Writer, shift: Ref | None, spread) -> str:  # type: ignore[no-untyped-def]
    return "" if shift is None else f" + {spread(writer.plain(shift))}"


IMPLEMENTATIONS = (
    Implementation(BatchNormInference, inference),
    Implementation(BatchNorm, training, refuse_residual),
)
