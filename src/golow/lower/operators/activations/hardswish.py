"""hardswish: x times hardsigmoid(x)."""

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

HARDSWISH = Activation(name="hardswish")


def forward(x: Tensor) -> Tensor:
    """hardswish(x)."""
    from torch.nn import functional

    return functional.hardswish(x)


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """Reads the argument."""
    import torch

    result: Tensor = torch.ops.aten.hardswish_backward.default(gradient, value)
    return result


def spelled(call: Call) -> Activate | None:
    """``hardswish(x)``."""
    return of_call(call, HARDSWISH)


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``hardswish_backward``, which reads the argument."""
    return backward_of_argument(call, HARDSWISH)


FUNCTION = ActivationFunction("hardswish", forward, backward)

SPELLINGS = {
    "aten.hardswish.default": spelled,
    "aten.hardswish_backward.default": spelled_backward,
}
