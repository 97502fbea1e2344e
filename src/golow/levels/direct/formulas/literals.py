"""Numbers in C, as formulas contain them."""

from __future__ import annotations

import math

import numpy as np


def number(value: float) -> str:
    """Return a float32 as a C literal."""
    if math.isnan(value):
        return "__int_as_float(0x7fc00000)"
    if math.isinf(value):
        return f"__int_as_float({'0x7f800000' if value > 0 else '0xff800000'})"
    return f"{float(np.float32(value))!r}f"


def clipped(x: str, low: float, high: float) -> str:
    """Return the C expression of x clamped to two bounds; NaN stays NaN."""
    return f"({x} < {number(low)} ? {number(low)} : {x} > {number(high)} ? {number(high)} : {x})"
