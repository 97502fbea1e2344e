"""Examples of the weight and bias into which a batch norm is folded."""

from __future__ import annotations

from golow.lower.operators.folded_batch_norm import FoldedBias, FoldedWeight
from support.graphs.drawn_arguments import X

RECORDS = (
    FoldedWeight(weight=X, scale=None, variance=X, epsilon=1e-5),
    FoldedBias(bias=None, scale=X, shift=X, mean=X, variance=X, epsilon=1e-5),
)
