"""leaky_relu: x if it is positive, else x times a slope."""

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


def leaky_relu(call: Call) -> Activation | None:
    """None for a negative slope: the result would not have the sign of the argument."""
    slope = call.number("negative_slope")
    return Activation(name="leaky_relu", numbers=(slope,)) if 0 <= slope < math.inf else None


def forward(x: Tensor, slope: float) -> Tensor:
    """leaky_relu(x)."""
    from torch.nn import functional

    return functional.leaky_relu(x, slope)


def backward(gradient: Tensor, value: Tensor, slope: float) -> Tensor:
    """The result is positive exactly where the argument is."""
    import torch

    result: Tensor = torch.ops.aten.leaky_relu_backward.default(gradient, value, slope, False)
    return result


def spelled(call: Call) -> Activate | None:
    """``leaky_relu(x, negative_slope)``."""
    return of_call(call, leaky_relu(call))


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``leaky_relu_backward``, where it reads the argument."""
    return None if call.flag("self_is_result") else backward_of_argument(call, leaky_relu(call))


FUNCTION = ActivationFunction("leaky_relu", forward, backward, "either")

SPELLINGS = {
    "aten.leaky_relu.default": spelled,
    "aten.leaky_relu_backward.default": spelled_backward,
}
