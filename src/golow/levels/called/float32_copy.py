"""A module as golow's graphs begin: on the CPU and in float32."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.torch.device import HALVES


def float32_copy(module: nn.Module) -> nn.Module:
    """Return a copy on the CPU in float32. Its parameters have no content, which takes no memory
    until it is read, and it is not."""
    known: dict[int, Any] = {}
    for tensor in tensors_of(module):
        if isinstance(tensor, nn.Parameter):
            empty = torch.empty(tensor.shape, dtype=_widened(tensor))
            known[id(tensor)] = nn.Parameter(empty, requires_grad=False)
        else:
            known[id(tensor)] = on_cpu(tensor)
    return copy.deepcopy(module, known)


def tensors_of(module: nn.Module) -> Iterator[Tensor]:
    """Yield parameters, buffers and tensors that layers hold in attributes."""
    yield from module.parameters()
    yield from module.buffers()
    for layer in module.modules():
        yield from (item for item in vars(layer).values() if isinstance(item, Tensor))


def on_cpu(tensor: Tensor) -> Tensor:
    """A tensor on the CPU, half precision as float32."""
    return tensor.detach().to("cpu", _widened(tensor))


def _widened(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.dtype in HALVES.values() else tensor.dtype
