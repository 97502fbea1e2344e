"""Examples of numbers that become whole numbers."""

from __future__ import annotations

from golow.lower.operators.quantize import Quantize
from support.graphs.drawn_arguments import X

RECORDS = (Quantize(x=X, scale=X, dtype="uint8"),)
