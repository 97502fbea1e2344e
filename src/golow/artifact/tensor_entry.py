"""Tensors of an entry in the format of safetensors, as arrays over the file's own memory.

The library opens files by their names only; here the tensors are a part of one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from golow.records.errors import GolowError

TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "BF16": "bfloat16",
    "C64": "complex64",
}  # fmt: skip


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def tensors_of(data: memoryview | bytes, what: str) -> Mapping[str, np.ndarray]:
    """The tensors by name, without a copy. what: for the message. Raises `GolowError` for what is
    in no such format."""
    try:
        size = int.from_bytes(data[:8], "little")
        if len(data) < 8 or size > len(data) - 8:
            raise ValueError("its header is cut off")
        header = msgspec.json.decode(bytes(data[8 : 8 + size]), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        body = data[8 + size :]
        return {
            name: _array(msgspec.json.decode(raw, type=_Tensor), body)
            for name, raw in header.items()
        }
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
        raise GolowError(f"{what} is not a safetensors file: {error}") from error


def tensors_in_file(file: Path) -> Mapping[str, np.ndarray]:
    """The tensors of a file, where they are in it. Raises `GolowError` if it cannot be read."""
    try:
        data = np.memmap(file, np.uint8, "r").data
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GolowError(f"{file} cannot be read: {reason}") from error
    return tensors_of(data.cast("B"), str(file))


def dtype_of(name: str) -> np.dtype:
    """NumPy's type of that name; bfloat16 is a package's."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    return np.dtype(name)


def _array(tensor: _Tensor, body: memoryview | bytes) -> np.ndarray:
    dtype = dtype_of(TYPES[tensor.dtype])
    start, end = tensor.data_offsets
    count = math.prod(tensor.shape)
    if not 0 <= start <= end <= len(body) or end - start != count * dtype.itemsize:
        raise ValueError("a tensor extends beyond the file")
    if min(tensor.shape, default=0) < 0:
        raise ValueError("a tensor has a negative size")
    return np.frombuffer(body, dtype, count, start).reshape(tensor.shape)
