"""hardsigmoid: x / 6 + 1 / 2, clamped between zero and one."""

from __future__ import annotations

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

HARDSIGMOID = Activation(name="hardsigmoid")


def forward(x: Tensor) -> Tensor:
    """hardsigmoid(x)."""
    from torch.nn import functional

    return functional.hardsigmoid(x)


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """Reads the argument."""
    import torch

    result: Tensor = torch.ops.aten.hardsigmoid_backward.default(gradient, value)
    return result


def spelled(call: Call) -> Activate | None:
    """``hardsigmoid(x)``."""
    return of_call(call, HARDSIGMOID)


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``hardsigmoid_backward``, which reads the argument."""
    return backward_of_argument(call, HARDSIGMOID)


FUNCTION = ActivationFunction("hardsigmoid", forward, backward)

SPELLINGS = {
    "aten.hardsigmoid.default": spelled,
    "aten.hardsigmoid_backward.default": spelled_backward,
}
