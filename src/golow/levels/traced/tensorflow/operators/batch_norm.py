"""Batch norm, with the batch's own statistics or with given ones."""

from __future__ import annotations

import math

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.operators.activation import activated
from golow.levels.traced.refusals import refuse_residual
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Ref
from golow.lower.operators.batch_norm import BatchNorm, BatchNormInference

NOTHING = "tf.constant([], tf.float32)"


def inference(writer: Writer, given: BatchNormInference) -> None:
    """``(x - mean) * (scale / sqrt(variance + epsilon)) + shift``."""
    x, image = _channels_last(writer, given.x)
    mean, variance = writer.plain(given.mean), writer.plain(given.variance)
    shift, scale = (_or_none(writer, item) for item in (given.shift, given.scale))
    normed = f"tf.nn.batch_normalization({x}, {mean}, {variance}, {shift}, {scale}, "
    _put_result(writer, given.x, f"{normed}{given.epsilon!r})", image)


def training(writer: Writer, given: BatchNorm) -> None:
    """Batch norm with mean and variance of the batch, which also update the running ones."""
    x, image = _channels_last(writer, given.x)
    shape = writer.value(given.x).shape
    count = math.prod(shape) // shape[1]
    if image:
        normed, mean, variance, corrected = _fused(writer, given, x, shape[1], count)
    else:
        axes = tuple(range(len(shape) - 1))
        moments = writer.line("moments", f"tf.nn.moments({x}, {axes})")
        mean, variance = f"{moments}[0]", f"{moments}[1]"
        shift, scale = (_or_none(writer, item) for item in (given.shift, given.scale))
        arguments = f"{x}, {mean}, {variance}, {shift}, {scale}, {given.epsilon!r}"
        normed = f"tf.nn.batch_normalization({arguments})"
        corrected = f"{variance} * {count / max(count - 1, 1)!r}"
    normed = activated(writer, normed, given.activation, "normed")
    _put_result(writer, given.x, normed, image)
    writer.put(mean, index=1)
    writer.put(f"tf.math.rsqrt({variance} + {given.epsilon!r})", index=2)
    for index, running, new in (
        (3, given.running_mean, mean),
        (4, given.running_variance, corrected),
    ):
        kept, moved = repr(1 - given.momentum), repr(given.momentum)
        writer.put(f"{kept} * {writer.plain(running)} + {moved} * {new}", index=index)


def _fused(
    writer: Writer, given: BatchNorm, x: str, channels: int, count: int
) -> tuple[str, str, str, str]:
    """Operator that Keras calls for an image, called directly: `tf.compat.v1` raises an epsilon of
    1e-5. Its variance is the corrected one, as the running variance needs it."""
    scale = f"tf.ones({channels})" if given.scale is None else writer.plain(given.scale)
    shift = f"tf.zeros({channels})" if given.shift is None else writer.plain(given.shift)
    call = (
        f"tf.raw_ops.FusedBatchNormV3(x={x}, scale={scale}, offset={shift}, mean={NOTHING}, "
        f"variance={NOTHING}, epsilon={given.epsilon!r}, is_training=True)"
    )
    fused = writer.line("fused", call)
    variance = f"{fused}.batch_variance * {(count - 1) / count!r}"
    return f"{fused}.y", f"{fused}.batch_mean", variance, f"{fused}.batch_variance"


def _channels_last(writer: Writer, given: Ref) -> tuple[str, bool]:
    """The argument so that values [C] broadcast with it, and whether it is an image."""
    rank = len(writer.value(given).shape)
    if rank == 4:
        return writer.image(given), True
    x = writer.plain(given)
    order = (0, *range(2, rank), 1)
    return (x if rank == 2 else writer.line("last", f"tf.transpose({x}, {order})")), False


def _put_result(writer: Writer, given: Ref, text: str, image: bool) -> None:
    rank = len(writer.value(given).shape)
    if not image and rank > 2:
        text = f"tf.transpose({text}, {(0, rank - 1, *range(1, rank - 1))})"
    writer.put(text, image)


def _or_none(writer: Writer, given: Ref | None) -> str:
    return "None" if given is None else writer.plain(given)


IMPLEMENTATIONS = (
    Implementation(BatchNormInference, inference),
    Implementation(BatchNorm, training, refuse_residual),
)
