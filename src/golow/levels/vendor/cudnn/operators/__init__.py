"""What each operation of the graph becomes on a GPU: one function an operation, by its name."""

from __future__ import annotations

from golow.levels.vendor.cudnn.builder import Operator
from golow.levels.vendor.cudnn.operators import (
    convolution,
    elementwise,
    linear,
    losses,
    normalization,
    pooling,
    shapes,
    update,
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
}
