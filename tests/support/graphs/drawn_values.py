"""Numbers for the inputs of a graph."""

from __future__ import annotations

import torch
from torch import Tensor

from golow.lower.ir.graph import Value


def drawn(value: Value) -> Tensor:
    """Numbers of its shape and type; integers are zero, so that they are legal indices."""
    dtype = getattr(torch, value.dtype)
    if value.dtype == "bool":
        return torch.rand(value.shape) > 0.3
    return (
        torch.rand(value.shape) + 0.1
        if dtype.is_floating_point
        else torch.zeros(value.shape, dtype=dtype)
    )
