"""Conversion of values to another type."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    FLOATING,
    VECTOR,
    flat,
    require_count,
    vector,
)

FILE = FOLDER / "cast.cu"


def cast(source: str, dtype: str, count: int) -> Kernel:
    """Pointers: count values of ``source`` -> as many of ``dtype``; a copy if the types are equal.

    Raises ValueError from floating point to integers, and between two integer types.
    """
    require_cast(source, dtype)
    require_count(count)
    each = vector(source, dtype)
    name = f"cast<{C_TYPES[source]}, {C_TYPES[dtype]}, {each}>"
    return Kernel(FILE, name, *flat(count, each), (np.uint64(count),), code=VECTOR)


def require_cast(source: str, dtype: str) -> None:
    """Raises ValueError for unknown types, and if a cast would round to integers."""
    for name in (source, dtype):
        if name not in C_TYPES:
            raise ValueError(f"no type {name}; it must be one of {', '.join(C_TYPES)}")
    if dtype not in FLOATING and source != dtype:
        raise ValueError(f"no cast from {source} to {dtype}; cast to one of {', '.join(FLOATING)}")
