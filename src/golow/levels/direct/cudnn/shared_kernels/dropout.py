"""Launches `dropout.cu`: dropout whose random numbers are a function of seed, step and
element."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    VECTOR,
    flat,
    require_count,
    require_floating,
    vector,
)

FILE = Path(__file__).with_suffix(".cu")
# In device memory; all layers with the same probability share it.
CONTROL = np.dtype([("seed", np.uint32), ("step", np.uint32), ("probability", np.float32)])
PROBABILITY_OFFSET = 8  # bytes
MASKED = 8  # elements of a mask that a thread draws at once


def forward_kernel(dtype: str, count: int, layer: int = 0) -> Kernel:
    """Pointers: x, control (`CONTROL`) -> y, mask (bool).

    layer: makes the layers of one network draw different numbers. Raises ValueError for a type that
    is not floating point.
    """
    require_floating(dtype=dtype)
    require_count(count)
    each = vector(dtype)
    grid, block = flat(count, each)
    scalars = (np.uint64(count), np.uint32(layer))
    name = f"dropout<{C_TYPES[dtype]}, {each}>"
    return Kernel(FILE, name, grid, block, scalars, code=VECTOR)


def mask_kernel(count: int, layer: int = 0) -> Kernel:
    """Pointers: control (`CONTROL`) -> mask (bool), as that of `forward_kernel`."""
    require_count(count)
    grid, block = flat(count, MASKED)
    scalars = (np.uint64(count), np.uint32(layer))
    return Kernel(FILE, f"dropout_mask<{MASKED}>", grid, block, scalars, code=VECTOR)


def advance_kernel() -> Kernel:
    """Pointers: control, whose step is incremented."""
    return Kernel(FILE, "advance", (1, 1, 1), (1, 1, 1), code=VECTOR)
