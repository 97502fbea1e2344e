"""What each operation of the graph becomes in oneDNN: one function an operation, by its name."""

from __future__ import annotations

from golow.levels.vendor.onednn.builder import Operator
from golow.levels.vendor.onednn.operators import (
    convolution,
    elementwise,
    linear,
    losses,
    normalization,
    pooling,
    shapes,
    update,
    weights,
)

OPERATORS: dict[str, Operator] = {
    **convolution.OPERATORS,
    **elementwise.OPERATORS,
    **linear.OPERATORS,
    **losses.OPERATORS,
    **normalization.OPERATORS,
    **pooling.OPERATORS,
    **shapes.OPERATORS,
    **update.OPERATORS,
    **weights.OPERATORS,
}
