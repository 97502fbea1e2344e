"""Rounding to numbers of 8 bits. `fused_pointwise.py` puts it into the kernel of the functions
before it."""

from __future__ import annotations

from golow.levels.direct.cudnn.problems.element_types import OF_8_BITS
from golow.levels.direct.implementation import Implementation, Question, in_groups
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.quantize import E4M3, RANGES, Quantize


def rounded(product: str, dtype: str) -> str:
    """Return C for the number nearest to a product of floats, within the range of the type."""
    if dtype == E4M3:
        return product  # the conversion rounds and clips
    lowest, highest = RANGES[dtype]
    return f"fminf(fmaxf(rintf({product}), {lowest}.0f), {highest}.0f)"


def _refuse(arguments: Quantize, question: Question) -> str:
    return not_floating(question, arguments.x, arguments.scale)


IMPLEMENTATIONS = (Implementation(Quantize, in_groups, _refuse, OF_8_BITS),)
