"""Dropout with random numbers that are a function of seed, step and element."""

from __future__ import annotations

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import (
    VECTOR,
    flat,
    require_count,
    require_floating,
    vector,
)

# In device memory, for all layers of a network.
CONTROL = np.dtype([("seed", np.uint32), ("step", np.uint32), ("probability", np.float32)])


def dropout(dtype: str, count: int, layer: int = 0) -> Kernel:
    """Pointers: x, control (`CONTROL`) -> y, mask (bool).

    layer: layers of one network draw different numbers by it. Raises ValueError for a type that
    is not floating point.
    """
    require_floating(dtype=dtype)
    require_count(count)
    each = vector(dtype)
    grid, block = flat(count, each)
    scalars = (np.uint64(count), np.uint32(layer))
    name = f"dropout<{C_TYPES[dtype]}, {each}>"
    return Kernel("dropout.cu", name, grid, block, scalars, code=VECTOR)


def advance() -> Kernel:
    """Pointers: control, whose step goes up by one."""
    return Kernel("dropout.cu", "advance", (1, 1, 1), (1, 1, 1), code=VECTOR)
