"""Examples of softmax with the functions in front of it."""

from __future__ import annotations

from golow.lower.operators.fused_softmax import FusedSoftmax
from support.graphs.drawn_arguments import X

NOT_IMPLEMENTED = {"onednn": (FusedSoftmax,)}

RECORDS = (FusedSoftmax(inputs=(X,), program=("{}",), log=False, rounded=True),)
