"""relu: the larger of x and zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import ActivationFunction
from golow.lower.operators.activation import Activate, ActivateBackward, gradient_of, of_call

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call

RELU = Activation(name="relu")


def forward(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return x.relu()


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """The result is positive exactly where the argument is. NaN lets the gradient through, as in
    ATen."""
    return gradient.masked_fill(value <= 0, 0)


def spelled(call: Call) -> Activate | None:
    """``relu(x)``."""
    return of_call(call, RELU)


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``threshold_backward``, which autograd calls with relu's result."""
    if call.number("threshold") != 0:
        return None
    return gradient_of(call, RELU, "self", from_result=True)


FUNCTION = ActivationFunction("relu", forward, backward, "either")

SPELLINGS = {
    "aten.relu.default": spelled,
    "aten.threshold_backward.default": spelled_backward,
}
