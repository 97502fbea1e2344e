"""Allocates tensors as code of torch.compile does, in a quarter of the time of `torch.empty`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch._C._dynamo.guards import (  # type: ignore[attr-defined]
    _empty_strided_cpu,
    _empty_strided_cuda,
)

NewTensor = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], Tensor]
"""Allocates a tensor of this shape, with these strides, of this type."""


def allocator(device: torch.device) -> NewTensor:
    """Return what allocates tensors on the device, without content."""
    if device.type == "cpu":
        return _empty_strided_cpu  # type: ignore[no-any-return]
    if torch.cuda.device_count() == 1:  # it allocates on the current device
        return _empty_strided_cuda  # type: ignore[no-any-return]

    def new(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)

    return new


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a row-major tensor."""
    return torch.empty(shape, device="meta").stride()
