"""Examples of the mean of gradients over ranks."""

from __future__ import annotations

from golow.lower.operators.all_reduce import AllReduce
from support.graphs.drawn_arguments import X

RECORDS = (AllReduce(gradients=(X, X), ranks=2),)
