"""tanh: the hyperbolic tangent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import ActivationFunction
from golow.lower.operators.activation import Activate, ActivateBackward, backward_of_result, of_call

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call

TANH = Activation(name="tanh")


def forward(x: Tensor) -> Tensor:
    """tanh(x)."""
    return x.tanh()


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """Reads the result."""
    return gradient * (1 - value * value)


def spelled(call: Call) -> Activate | None:
    """``tanh(x)``."""
    return of_call(call, TANH)


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``tanh_backward``, which reads the result."""
    return backward_of_result(call, TANH)


FUNCTION = ActivationFunction("tanh", forward, backward, "result")

SPELLINGS = {
    "aten.tanh.default": spelled,
    "aten.tanh_backward.default": spelled_backward,
}
