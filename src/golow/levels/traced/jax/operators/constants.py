"""What makes values from numbers or draws."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.writer import DTYPES, Writer, number
from golow.lower.operators.dropout import Dropout
from golow.lower.operators.fill import Fill
from golow.lower.operators.iota import Iota


def fill(writer: Writer, given: Fill) -> None:
    """One number everywhere."""
    dtype = DTYPES[given.dtype]
    whole = "int" in dtype and abs(given.value) != float("inf")
    value = number(int(given.value) if whole else given.value)
    writer.put(f"jnp.full({tuple(given.shape)}, {value}, {dtype})")


def iota(writer: Writer, given: Iota) -> None:
    """start, start + step, ..."""
    dtype = DTYPES[given.dtype]
    whole = isinstance(given.start, int) and isinstance(given.step, int)
    counted = f"jnp.arange({given.count}" + ("" if whole else ", dtype=jnp.float32") + ")"
    text = counted if given.step == 1 else f"{counted} * {number(given.step)}"
    text = text if given.start == 0 else f"{text} + {number(given.start)}"
    writer.put(f"({text}).astype({dtype})")


def dropout(writer: Writer, given: Dropout) -> None:
    """Elements set to zero by chance, the others scaled up; nothing unless it is active."""
    [x], image = writer.together(given.x)
    keep = 1 - given.probability
    drawn = f"jax.random.bernoulli({writer.draw()}, {keep!r}, {x}.shape)"
    mask = writer.line("kept", f"{drawn} if active else jnp.ones({x}.shape, bool)")
    scale = 1 / keep if keep else 0.0
    writer.put(f"jnp.where({mask}, {x} * {scale!r}, 0) if active else {x}", image)
    writer.put(mask, image, index=1)


IMPLEMENTATIONS = (
    Implementation(Fill, fill),
    Implementation(Iota, iota),
    Implementation(Dropout, dropout),
)
