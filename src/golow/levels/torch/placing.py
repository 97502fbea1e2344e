"""A module's tensors on a device, in a dtype."""

from __future__ import annotations

import torch
from torch import Tensor, nn

COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}
"""The complex dtype of two numbers of a dtype. There is none that PyTorch can compute in for bf16
and fp16: complex tensors keep theirs beside those."""

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Images and volumes, by their number of dimensions."""


def place(
    module: nn.Module,
    device: torch.device,
    dtype: torch.dtype,
    order: torch.memory_format = torch.contiguous_format,
) -> None:
    """``Module.to``, which would drop the imaginary parts of complex tensors, and which has no
    order that suits images and volumes alike."""

    def placed(tensor: Tensor) -> Tensor:
        kind = tensor.dtype
        if tensor.is_complex():
            kind = COMPLEX.get(dtype, kind)
        elif tensor.is_floating_point():
            kind = dtype
        if tensor.dim() not in CHANNELS_LAST:
            return tensor.to(device, kind)
        return tensor.to(device, kind, memory_format=order_of(tensor, order))

    module._apply(placed)  # type: ignore[no-untyped-call]


def order_of(tensor: Tensor, order: torch.memory_format) -> torch.memory_format:
    """That order of memory, if a tensor of this many dimensions can have it."""
    if order is torch.channels_last:
        return CHANNELS_LAST.get(tensor.dim(), torch.contiguous_format)
    return order
