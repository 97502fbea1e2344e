"""A module whose compiled code PyTorch keeps apart from that of all others."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from torch import Tensor, nn


def with_own_code(module: nn.Module) -> nn.Module:
    """The module inside another one, whose forward pass is a code object of its own.

    torch.compile keeps what it compiled beside the code object of a forward pass. It would reuse it
    for another module of the class, also if one of them is to be frozen and the other is not, and
    after eight it would compile nothing more.
    """

    def forward(self: Any, *inputs: Tensor) -> Any:
        return self.module(*inputs)

    own = FunctionType(forward.__code__.replace(), forward.__globals__, "forward")
    wrapped: nn.Module = type("Own", (nn.Module,), {"forward": own})()
    wrapped.module = module
    wrapped.training = module.training  # of this one alone: layers keep their flags
    return wrapped
