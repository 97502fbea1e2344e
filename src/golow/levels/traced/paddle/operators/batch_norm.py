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
    mean, variance = writer.plain(given.mean), writer.plain(given.variance)
    writer.put(f"{_call(writer, given, mean, variance)}, training=False)")


def training(writer: Writer, given: BatchNorm) -> None:
    """The same with mean and variance of the batch, which also move the running ones.

    Paddle's function moves what it is given, by its own definition: with the variance of the batch
    as it is, where PyTorch's is corrected. With the momentum 0 it writes what the batch has.
    """
    shape = writer.value(given.x).shape
    count = math.prod(shape) // shape[1]
    mean, variance = (
        writer.line(name, f"paddle.zeros(({shape[1]},))") for name in ("mean", "variance")
    )
    call = f"{_call(writer, given, mean, variance)}, training=True, momentum=0.0)"
    writer.put(activated(writer, writer.line("normed", call), given.activation, "sum"))
    writer.put(mean, index=1)
    writer.put(f"paddle.rsqrt({variance} + {given.epsilon!r})", index=2)
    for index, running, new in (
        (3, given.running_mean, mean),
        (4, given.running_variance, f"{variance} * {count / max(count - 1, 1)!r}"),
    ):
        kept, moved = repr(1 - given.momentum), repr(given.momentum)
        writer.put(f"{kept} * {writer.plain(running)} + {moved} * {new}", index=index)


def _call(writer: Writer, given: BatchNorm | BatchNormInference, mean: str, variance: str) -> str:
    """The call, without its last arguments."""
    scale, shift = (_or_none(writer, item) for item in (given.scale, given.shift))
    arguments = f"{writer.plain(given.x)}, {mean}, {variance}, {scale}, {shift}"
    return f"F.batch_norm({arguments}, epsilon={given.epsilon!r}"


def _or_none(writer: Writer, given: Ref | None) -> str:
    return "None" if given is None else writer.plain(given)


IMPLEMENTATIONS = (
    Implementation(BatchNormInference, inference),
    Implementation(BatchNorm, training, refuse_residual),
)
