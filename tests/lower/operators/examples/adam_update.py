"""Examples of Adam's update, and of the numbers that depend on its step."""

from __future__ import annotations

from golow.lower.operators.adam_update import AdamStep, AdamUpdate
from support.graphs.drawn_arguments import X

RECORDS = (
    AdamStep(steps=X, learning_rate=X, betas=(0.9, 0.999)),
    AdamUpdate(
        parameter=X, momentum=X, square=X, gradient=X, learning_rate=X, rate=X, root=X,
        betas=(0.9, 0.999), epsilon=1e-8, weight_decay=0.01, decoupled=True, clip=None,
    ),
)  # fmt: skip
