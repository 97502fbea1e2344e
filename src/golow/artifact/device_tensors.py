"""PyTorch tensors on a GPU as inputs and outputs of a loaded module. PyTorch is there if one of
them is, so that nothing here imports it."""

from __future__ import annotations

import sys
from typing import Any

from golow.artifact.host_arrays import is_tensor
from golow.records.errors import GolowError


class DeviceTensors:
    """Operations of a call on tensors of the GPU with that number."""

    def __init__(self, ordinal: int) -> None:
        self._torch: Any = sys.modules["torch"]
        self._device = self._torch.device("cuda", ordinal)

    def taken(self, label: str, item: Any) -> Any:
        """The tensor. Raises `GolowError` for anything else, or a tensor on another device."""
        if not is_tensor(item) or item.device != self._device:
            where = f"on {item.device}" if is_tensor(item) else f"{type(item).__name__}"
            raise GolowError(
                f"{label} is {where}; this runs on {self._device}",
                "call it with tensors there, or only with NumPy arrays.",
            )
        return item.detach()

    def type_of(self, tensor: Any) -> str:
        """The name of its type."""
        return str(tensor.dtype).removeprefix("torch.")

    def plain(self, tensor: Any) -> Any:
        """Return the tensor row-major."""
        return tensor.resolve_conj().resolve_neg().contiguous()

    def is_plain(self, tensor: Any) -> bool:
        """Return True if a plan can write it."""
        return bool(tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg())

    def lengthened(self, tensor: Any, length: int) -> Any:
        """Return the tensor with zeros appended along its second axis."""
        missing = length - tensor.shape[1]
        behind = [0, 0] * (tensor.dim() - 2) + [0, missing]
        return self._torch.nn.functional.pad(tensor, behind)

    def widened(self, tensor: Any, rows: int) -> Any:
        """Return the tensor with its last row repeated."""
        index = self._torch.arange(rows, device=self._device).clamp_(max=tensor.shape[0] - 1)
        return tensor.index_select(0, index)

    def new(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Memory for an output."""
        return self._torch.empty(shape, dtype=getattr(self._torch, dtype), device=self._device)

    def part(self, tensor: Any, axis: int, size: int) -> Any:
        """A copy of its first elements along an axis."""
        return tensor.narrow(axis, 0, size).contiguous()

    def copy(self, source: Any, target: Any) -> None:
        """Write what fits of a tensor into another one."""
        target.copy_(source[tuple(map(slice, target.shape))])

    def address(self, tensor: Any) -> int:
        """Where it is."""
        return int(tensor.data_ptr())

    def returned(self, tensor: Any, like: Any) -> Any:
        """An output as the caller gets it."""
        return tensor
