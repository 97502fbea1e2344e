"""Builds a module without drawing its weights, for one whose weights are loaded next: that of a
billion numbers takes longer than loading them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# Functions of torch.nn.init come as they are called, and call the others without a mode.
DRAWING = {
    *(getattr(torch.Tensor, name) for name in ("normal_", "uniform_", "random_", "exponential_")),
    *(getattr(torch.nn.init, name) for name in ("normal_", "uniform_", "kaiming_uniform_")),
}


class Undrawn(TorchFunctionMode):
    """Within it, tensors that would be filled with random numbers keep what they hold."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function, unless it draws in place."""
        named = dict(kwargs or {})
        if func in DRAWING:
            return args[0] if args else named["tensor"]
        return func(*args, **named)
