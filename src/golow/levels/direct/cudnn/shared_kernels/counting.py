"""Launches `counting.cu`."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel

FILE = FOLDER / "counting.cu"
THREADS = 256


def count(number: int) -> Kernel:
    """Add one to ``number`` int64 counters in place."""
    grid = (max(1, -(-number // THREADS)), 1, 1)
    return Kernel(FILE, "count", grid, (THREADS, 1, 1), (np.int32(number),))
