"""Examples of axes that begin elsewhere."""

from __future__ import annotations

from golow.lower.operators.roll import Roll
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (Roll,)}

RECORDS = (Roll(x=X, axes=(0, 1), starts=(1, 2)),)
