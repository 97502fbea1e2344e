"""What makes values from numbers or draws."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.tensorflow.writer import DTYPES, Writer
from golow.levels.traced.writer import number
from golow.lower.operators.dropout import Dropout
from golow.lower.operators.fill import Fill
from golow.lower.operators.iota import Iota


def fill(writer: Writer, given: Fill) -> None:
    """One number everywhere."""
    value: float = given.value
    if given.dtype == "bool":
        value = bool(value)
    elif given.dtype != "float32":
        value = int(value)
    writer.put(
        f"tf.fill({tuple(given.shape)}, tf.constant({number(value)}, {DTYPES[given.dtype]}))"
    )


def iota(writer: Writer, given: Iota) -> None:
    """start, start + step, ..."""
    whole = isinstance(given.start, int) and isinstance(given.step, int)
    dtype = "int64" if whole else "float32"
    counted = f"tf.range({given.count}, dtype={DTYPES[dtype]})"
    text = counted if given.step == 1 else f"{counted} * {number(given.step)}"
    text = text if given.start == 0 else f"{text} + {number(given.start)}"
    writer.put(writer.cast(text, dtype, given.dtype))


def dropout(writer: Writer, given: Dropout) -> None:
    """Elements set to zero by chance, the others scaled up; nothing unless it is active."""
    [x], image = writer.together(given.x)
    keep = 1 - given.probability
    drawn = f"tf.random.stateless_uniform({x}.shape, {writer.draw()}) < {keep!r}"
    mask = writer.line("kept", f"{drawn} if active else tf.ones({x}.shape, tf.bool)")
    scale = 1 / keep if keep else 0.0
    writer.put(f"tf.where({mask}, {x} * {scale!r}, 0.0) if active else {x}", image)
    writer.put(mask, image, index=1)


IMPLEMENTATIONS = (
    Implementation(Fill, fill),
    Implementation(Iota, iota),
    Implementation(Dropout, dropout),
)
