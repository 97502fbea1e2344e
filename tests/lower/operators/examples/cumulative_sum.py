"""Examples of running sums."""

from __future__ import annotations

from golow.lower.operators.cumulative_sum import CumulativeSum
from support.graphs.drawn_arguments import Drawn, X, elements

RECORDS = (CumulativeSum(x=X, axis=0, dtype="int64"),)

CALLS = {"aten.cumsum.default": elements().map(lambda x: Drawn({"self": x, "dim": -1}))}
