"""Launches `delay.cu`."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel

FILE = FOLDER / "delay.cu"


def delay(nanoseconds: int) -> Kernel:
    """Wait that many nanoseconds on the device; no pointers."""
    return Kernel(FILE, "delay", (1, 1, 1), (1, 1, 1), (np.int64(nanoseconds),))
