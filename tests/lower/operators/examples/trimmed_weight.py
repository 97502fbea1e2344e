"""Examples of the part of a weight that is read."""

from __future__ import annotations

from golow.lower.operators.trimmed_weight import TrimmedWeight
from support.graphs.drawn_arguments import X

RECORDS = (TrimmedWeight(weight=X, rows=(0, 1), columns=(1, 1)),)
