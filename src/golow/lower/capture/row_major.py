"""Weights and inputs in the order of a graph: its tensors are row-major, while a module may have
weights in another memory format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn


@contextmanager
def row_major(module: nn.Module, *inputs: tuple[Tensor, ...]) -> Iterator[list[tuple[Tensor, ...]]]:
    """Let the module's weights be row-major within the block; yields the inputs so. In channels
    last PyTorch would record views that are none in a row-major tensor."""
    tensors = chain(module.parameters(), module.buffers())
    others = [(tensor, tensor.data) for tensor in tensors if _is_other(tensor)]
    for tensor, data in others:
        tensor.data = data.contiguous()
    try:
        yield [tuple(x.contiguous() if _is_other(x) else x for x in group) for group in inputs]
    finally:
        for tensor, data in others:
            tensor.data = data


def _is_other(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_contiguous()
