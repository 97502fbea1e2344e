"""gelu: x times the normal distribution function of x."""

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


def forward(x: Tensor) -> Tensor:
    """gelu(x)."""
    from torch.nn import functional

    return functional.gelu(x, approximate="none")


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """Reads the argument."""
    import torch

    result: Tensor = torch.ops.aten.gelu_backward.default(gradient, value, approximate="none")
    return result


def spelled(call: Call) -> Activate | None:
    """``gelu(x, approximate)``."""
    return of_call(call, chosen(call))


def spelled_backward(call: Call) -> ActivateBackward | None:
    """``gelu_backward``, which reads the argument."""
    return backward_of_argument(call, chosen(call))


def chosen(call: Call) -> Activation | None:
    """gelu or gelu_tanh: ATen has one name for both."""
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    name = names.get(call.text("approximate"))
    return None if name is None else Activation(name=name)


FUNCTION = ActivationFunction("gelu", forward, backward)

SPELLINGS = {
    "aten.gelu.default": spelled,
    "aten.gelu_backward.default": spelled_backward,
}
