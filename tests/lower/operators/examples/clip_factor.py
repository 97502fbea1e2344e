"""Examples of the factor that clips gradients by their norm."""

from __future__ import annotations

from golow.lower.operators.clip_factor import ClipFactor
from support.graphs.drawn_arguments import X

RECORDS = (ClipFactor(gradients=(X, X), norm=1.0),)
