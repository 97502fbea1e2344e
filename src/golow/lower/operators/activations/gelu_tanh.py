"""gelu approximated with tanh; `gelu.py` has ATen's spelling of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.operator import ActivationFunction

if TYPE_CHECKING:
    from torch import Tensor


def forward(x: Tensor) -> Tensor:
    """gelu_tanh(x)."""
    from torch.nn import functional

    return functional.gelu(x, approximate="tanh")


def backward(gradient: Tensor, value: Tensor) -> Tensor:
    """Reads the argument."""
    import torch

    result: Tensor = torch.ops.aten.gelu_backward.default(gradient, value, approximate="tanh")
    return result


FUNCTION = ActivationFunction("gelu_tanh", forward, backward)
