"""Inputs that are not tensors: arrays of NumPy, or of whatever speaks DLPack."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from golow.records.errors import GolowError
from golow.workload.nested_inputs import hint_for


def as_tensor(label: str, item: Any) -> Tensor:
    """An array as a tensor over the same memory if PyTorch can read it there, else a copy. Raises
    `GolowError` for anything but tensors and arrays."""
    if isinstance(item, Tensor):
        return item
    if hasattr(item, "__dlpack__"):
        item = _readable(item)
        with suppress(BufferError, RuntimeError, TypeError):
            return from_dlpack(item)
        # Arrays that are read-only, or in a type of NumPy alone, are copied if possible.
        with suppress(RuntimeError, TypeError, ValueError):
            return torch.tensor(item)
        raise GolowError(f"{label} is an array that PyTorch cannot read")
    raise GolowError(
        f"{label} is {type(item).__name__}, not a tensor",
        hint_for(
            item,
            "a compiled module takes tensors; wrap the module in one that sets everything else.",
        ),
    )


def write_array(label: str, item: Any, content: Tensor) -> None:
    """Write a tensor into the memory of an input. Raises `GolowError` for an array that cannot be
    written."""
    if isinstance(item, Tensor):
        item.copy_(content)
        return
    if isinstance(item, np.ndarray):
        # PyTorch also gives a tensor over an array that is read-only.
        if item.flags.writeable:
            np.copyto(item, content.cpu().numpy())
            return
    else:
        with suppress(BufferError, RuntimeError, TypeError):
            from_dlpack(item).copy_(content)
            return
    raise GolowError(
        f"the module changes {label}, an array that is read-only", "call it with a copy."
    )


def _readable(item: Any) -> Any:
    """The array; a copy of one with negative strides, at which PyTorch ends the process, or in
    another byte order."""
    strides = getattr(item, "strides", None)
    if isinstance(strides, tuple) and min(strides, default=0) < 0:
        item = item.copy()
    if isinstance(item, np.ndarray) and not item.dtype.isnative:
        return item.astype(item.dtype.newbyteorder("="))
    return item
