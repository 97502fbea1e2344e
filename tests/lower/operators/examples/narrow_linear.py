"""Examples of linear layers with narrow weights."""

from __future__ import annotations

from golow.lower.operators.narrow_linear import NarrowLinear
from support.graphs.drawn_arguments import X
from support.graphs.written_graphs import RELU

RECORDS = (
    NarrowLinear(x=X, weight=X, scale=X, bias=X, residual=X, activation=RELU),
    NarrowLinear(x=X, weight=X),
)
NOT_IMPLEMENTED = {"cudnn": (NarrowLinear,)}
