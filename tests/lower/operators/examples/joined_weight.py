"""Examples of the weight of layers that are computed as one."""

from __future__ import annotations

from golow.lower.operators.joined_weight import JoinedWeight
from support.graphs.drawn_arguments import X

RECORDS = (JoinedWeight(parts=(X, X)),)
