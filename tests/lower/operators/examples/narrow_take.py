"""Examples of rows of narrow tables."""

from __future__ import annotations

from golow.lower.operators.narrow_take import NarrowTake
from support.graphs.drawn_arguments import X

RECORDS = (NarrowTake(x=X, index=X),)
NOT_IMPLEMENTED = {"cudnn": (NarrowTake,)}
