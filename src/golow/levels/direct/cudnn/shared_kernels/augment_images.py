"""Launches `augment_images.cu`."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import require_positive, rows_of

FILE = FOLDER / "augment_images.cu"


def normalise(n: int, c: int, h: int, w: int) -> Kernel:
    """Pointers: pixels [n, c, h, w] (uint8), scale and shift [c] (float32), shifts [n, 2] (int8) or
    0, flips [n] (uint8) or 0 -> [n, c, h, w] (float32), bit for bit as `golow.worker.feed`."""
    require_positive(n=n, c=c, h=h, w=w, rows=n * c * h)
    grid, block = rows_of(n * c * h, w)
    return Kernel(FILE, "normalise", grid, block, (np.int32(c), np.int32(h), np.int32(w)))
