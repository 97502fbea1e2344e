"""Examples of division by a length."""

from __future__ import annotations

from golow.lower.operators.unit_norm import UnitNorm
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (UnitNorm,)}

RECORDS = (UnitNorm(x=X, factor=None, epsilon=1e-12),)
