"""NumPy arrays as inputs and outputs of a loaded module; PyTorch tensors on the CPU are taken where
they are stored, if PyTorch is there: nothing here imports it."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import numpy as np

from golow.artifact.tensor_entry import dtype_of
from golow.records.errors import GolowError


class HostArrays:
    """Operations of a call on arrays in host memory."""

    def taken(self, label: str, item: Any) -> np.ndarray:
        """An array over the memory of a tensor, or of whatever speaks DLPack. Raises `GolowError`
        for anything else, and for a tensor that is not on the CPU."""
        if isinstance(item, np.ndarray):
            return item
        if is_tensor(item):
            if item.device.type != "cpu":
                raise GolowError(
                    f"{label} is on {item.device}; this was compiled for the CPU",
                    "call it with the tensor's .cpu().",
                )
            with suppress(TypeError, RuntimeError):
                found: np.ndarray = item.detach().resolve_conj().resolve_neg().numpy()
                return found
        elif hasattr(item, "__dlpack__"):
            with suppress(BufferError, RuntimeError, TypeError, ValueError):
                return np.from_dlpack(item)
        raise GolowError(
            f"{label} is {type(item).__name__}, not an array that NumPy can read",
            "call it with NumPy arrays, or with tensors on the CPU.",
        )

    def type_of(self, array: np.ndarray) -> str:
        """The name of its type."""
        return array.dtype.name

    def plain(self, array: np.ndarray) -> np.ndarray:
        """Return the array row-major, in this machine's byte order, at an address aligned to its
        elements."""
        native = array.dtype.newbyteorder("=")
        return np.require(array, native, requirements=["C_CONTIGUOUS", "ALIGNED"])

    def is_plain(self, array: np.ndarray) -> bool:
        """Return True if a plan can write it."""
        plain = array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative
        return plain and array.flags.writeable

    def lengthened(self, array: np.ndarray, length: int) -> np.ndarray:
        """Return the array with zeros appended along its second axis."""
        missing = length - array.shape[1]
        return np.pad(array, [(0, 0), (0, missing), *[(0, 0)] * (array.ndim - 2)])

    def widened(self, array: np.ndarray, rows: int) -> np.ndarray:
        """Return the array with its last row repeated."""
        found: np.ndarray = array[np.minimum(np.arange(rows), array.shape[0] - 1)]
        return found

    def new(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Memory for an output."""
        return np.empty(shape, dtype_of(dtype))

    def part(self, array: np.ndarray, axis: int, size: int) -> np.ndarray:
        """A copy of its first elements along an axis."""
        return np.ascontiguousarray(array[(*[slice(None)] * axis, slice(0, size))])

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        """Write what fits of an array into another one."""
        np.copyto(target, source[tuple(map(slice, target.shape))])

    def address(self, array: np.ndarray) -> int:
        """Where it is."""
        return int(array.ctypes.data)

    def returned(self, array: np.ndarray, like: Any) -> Any:
        """An output as the caller gets it: a tensor, if the first input was one."""
        return sys.modules["torch"].from_numpy(array) if is_tensor(like) else array


def is_tensor(item: Any) -> bool:
    """Return True for a PyTorch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(item, torch.Tensor)


def weight_array(name: str, item: Any) -> np.ndarray:
    """A weight as an array, also of a tensor on a GPU and of bfloat16, which NumPy does not know by
    itself. Raises `GolowError` for anything but a tensor or an array."""
    if is_tensor(item):
        item = item.detach().cpu().contiguous()
        if str(item.dtype) == "torch.bfloat16":
            bits: np.ndarray = item.view(sys.modules["torch"].int16).numpy()
            return bits.view(dtype_of("bfloat16"))
    return HostArrays().plain(HostArrays().taken(name, item))
