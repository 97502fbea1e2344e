"""Examples of RMSprop's update."""

from __future__ import annotations

from golow.lower.operators.rmsprop_update import RmspropUpdate
from support.graphs.drawn_arguments import X

RECORDS = (
    RmspropUpdate(
        parameter=X, square=X, momentum=None, gradient=X, learning_rate=X, smoothing=0.99,
        epsilon=1e-8, factor=0.0, weight_decay=0.0, clip=X,
    ),
)  # fmt: skip
