"""Launches `comparing.cu`."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import flat

FILE = FOLDER / "comparing.cu"
VECTOR_BYTES = 16


def compare(size: int) -> Kernel:
    """Pointers: two pieces of memory of ``size`` bytes, a word that becomes 1 if they differ."""
    return Kernel(FILE, "compare", *flat(size, VECTOR_BYTES), (np.uint64(size),))
