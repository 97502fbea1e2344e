"""Examples of functions of elements that are computed in one step."""

from __future__ import annotations

from golow.lower.operators.fused import Fused
from support.graphs.drawn_arguments import X

RECORDS = (Fused(inputs=(X, X), program=("{}",), yields=("y",)),)
