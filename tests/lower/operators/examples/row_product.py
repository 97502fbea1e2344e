"""Examples of products of a few rows."""

from __future__ import annotations

from golow.lower.operators.row_product import RowProduct
from support.graphs.drawn_arguments import X
from support.graphs.written_graphs import RELU

NOT_IMPLEMENTED = {"onednn": (RowProduct,)}

RECORDS = (
    RowProduct(
        x=X, weight=X, norm=X, bias=X, residual=None, epsilon=1e-5, activation=RELU, gated=True
    ),
)
