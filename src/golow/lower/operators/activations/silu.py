"""silu: x times sigmoid(x)."""

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

SILU = Activation(name="silu")


def forward(x: Tensor) -> Tensor:
    """silu(x)."""
    from torch.nn import functional

    return functional.silu(x)


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """Reads the argument."""
    import torch

    result: Tensor = torch.ops.aten.silu_backward.default(gradient, value)
    return result


def spelled(call: Call) -> Activate | None:
    """``silu(x)``."""
    return of_call(call, SILU)


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``silu_backward``, which reads the argument."""
    return backward_of_argument(call, SILU)


FUNCTION = ActivationFunction("silu", forward, backward)

SPELLINGS = {
    "aten.silu.default": spelled,
    "aten.silu_backward.default": spelled_backward,
}
