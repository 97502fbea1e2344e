"""Examples of the update of stochastic gradient descent."""

from __future__ import annotations

from golow.lower.operators.sgd_update import SgdUpdate
from support.graphs.drawn_arguments import X

RECORDS = (
    SgdUpdate(
        parameter=X, momentum=X, gradient=X, learning_rate=X, factor=0.9, weight_decay=0.0,
        nesterov=True, clip=X,
    ),
)  # fmt: skip
