"""Examples of linear layers of whole numbers."""

from __future__ import annotations

from golow.lower.operators.quantized_linear import QuantizedLinear
from support.graphs.drawn_arguments import X
from support.graphs.written_graphs import RELU

RECORDS = (QuantizedLinear(x=X, weight=X, scale=X, bias=X, residual=X, activation=RELU),)
