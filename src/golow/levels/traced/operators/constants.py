"""Operators that create values from numbers or draws."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.operators.dropout import Dropout
from golow.lower.operators.fill import Fill
from golow.lower.operators.iota import Iota


def fill(writer: Writer, given: Fill) -> None:
    """One number everywhere."""
    writer.put(writer.dialect.filled(given.shape, given.value, given.dtype))


def iota(writer: Writer, given: Iota) -> None:
    """start, start + step, ..."""
    dialect = writer.dialect
    whole = isinstance(given.start, int) and isinstance(given.step, int)
    dtype = "int64" if whole else "float32"
    counted = dialect.counted(given.count, dtype)
    text = counted if given.step == 1 else f"{counted} * {dialect.number(given.step)}"
    text = text if given.start == 0 else f"{text} + {dialect.number(given.start)}"
    writer.put(dialect.cast(text, dtype, given.dtype))


def dropout(writer: Writer, given: Dropout) -> None:
    """Elements set to zero by chance, the others scaled up; nothing unless it is active."""
    dialect = writer.dialect
    [x], image = writer.together(given.x)
    shape, keep = f"{x}.shape", 1 - given.probability
    drawn = dialect.drawn(shape, writer.draw(), keep)
    every = f"{dialect.module}.ones({shape}, {dialect.truth})"
    mask = writer.line("kept", f"{drawn} if active else {every}")
    scale = 1 / keep if keep else 0.0
    dropped = f"{dialect.module}.where({mask}, {x} * {scale!r}, {dialect.zero})"
    writer.put(f"{dropped} if active else {x}", image)
    writer.put(mask, image, index=1)


IMPLEMENTATIONS = (
    Implementation(Fill, fill),
    Implementation(Iota, iota),
    Implementation(Dropout, dropout),
)
