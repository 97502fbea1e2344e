"""Examples of sums with the functions in front of them."""

from __future__ import annotations

from golow.lower.operators.fused_reduce import FusedReduce
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (FusedReduce,)}

RECORDS = (FusedReduce(inputs=(X,), program=("{}",), function="mean", axes=(1, 2), keep=True),)
