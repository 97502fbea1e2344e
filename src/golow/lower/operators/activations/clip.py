"""clip: x clamped between two bounds. ATen calls it hardtanh, relu6 and clamp."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import ActivationFunction
from golow.lower.operators.activation import (
    Activate,
    ActivateBackward,
    backward_of_argument,
    of_call,
)

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


def clip(low: float, high: float) -> Activation | None:
    """The activation with these bounds; None if one is infinite."""
    finite = math.isfinite(low) and math.isfinite(high)
    return Activation(name="clip", numbers=(low, high)) if finite else None


def forward(x: Tensor, low: float, high: float) -> Tensor:
    """min(max(x, low), high)."""
    return x.clamp(low, high)


def backward(gradient: Tensor, value: Tensor, low: float, high: float) -> Tensor:
    """The result is within the bounds exactly where the argument is. NaN lets the gradient through,
    as in ATen."""
    return gradient.masked_fill((value <= low) | (value >= high), 0)


def hardtanh(call: Call) -> Activate | None:
    """``hardtanh(x, min_val, max_val)``."""
    return of_call(call, clip(call.number("min_val"), call.number("max_val")))


def relu6(call: Call) -> Activate | None:
    """``relu6(x)``."""
    return of_call(call, clip(0.0, 6.0))


def hardtanh_backward(call: Call) -> ActivateBackward | None:
    """``hardtanh_backward``, which reads the argument."""
    return backward_of_argument(call, clip(call.number("min_val"), call.number("max_val")))


FUNCTION = ActivationFunction("clip", forward, backward, "either")

SPELLINGS = {
    "aten.hardtanh.default": hardtanh,
    "aten.relu6.default": relu6,
    "aten.hardtanh_backward.default": hardtanh_backward,
}
