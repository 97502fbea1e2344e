"""elu: x if it is positive, else alpha times (exp(x) - 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import ActivationFunction
from golow.lower.operators.activation import Activate, ActivateBackward, gradient_of, of_call

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


def elu(call: Call) -> Activation | None:
    """None unless alpha is the only parameter: ATen can also scale the argument and the result."""
    if (call.number("scale"), call.number("input_scale")) != (1, 1):
        return None
    return Activation(name="elu", numbers=(call.number("alpha"),))


def forward(x: Tensor, alpha: float) -> Tensor:
    """elu(x)."""
    from torch.nn import functional

    return functional.elu(x, alpha)


def backward(gradient: Tensor, value: Tensor, alpha: float) -> Tensor:
    """Reads the argument."""
    import torch

    result: Tensor = torch.ops.aten.elu_backward.default(gradient, alpha, 1, 1, False, value)
    return result


def spelled(call: Call) -> Activate | None:
    """``elu(x, alpha, scale, input_scale)``."""
    return of_call(call, elu(call))


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``elu_backward``, where it reads the argument."""
    activation = elu(call)
    if call.flag("is_result"):
        return None
    return gradient_of(call, activation, "self_or_result", from_result=False)


FUNCTION = ActivationFunction("elu", forward, backward)

SPELLINGS = {
    "aten.elu.default": spelled,
    "aten.elu_backward.default": spelled_backward,
}
