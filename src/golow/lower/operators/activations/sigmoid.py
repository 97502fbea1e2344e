"""sigmoid: 1 / (1 + exp(-x))."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import ActivationFunction
from golow.lower.operators.activation import Activate, ActivateBackward, backward_of_result, of_call

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call

SIGMOID = Activation(name="sigmoid")


def forward(x: Tensor) -> Tensor:
    """sigmoid(x)."""
    return x.sigmoid()


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """Reads the result."""
    return gradient * value * (1 - value)


def spelled(call: Call) -> Activate | None:
    """``sigmoid(x)``."""
    return of_call(call, SIGMOID)


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``sigmoid_backward``, which reads the result."""
    return backward_of_result(call, SIGMOID)


FUNCTION = ActivationFunction("sigmoid", forward, backward, "result")

SPELLINGS = {
    "aten.sigmoid.default": spelled,
    "aten.sigmoid_backward.default": spelled_backward,
}
