"""Launches `loss_scale.cu`, and defines the state that its kernels share."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    VECTOR,
    flat,
    require_count,
    require_floating,
    vector,
)

FILE = FOLDER / "loss_scale.cu"
CODE = VECTOR + (FOLDER / "scaler.cuh").read_text()
# The state of loss scaling in device memory; torch.amp.GradScaler starts with a scale of 65536.
# A negative number of good steps keeps the scale as it is.
SCALER = np.dtype([("scale", np.float32), ("good_steps", np.int32), ("found", np.int32)])


def find_nonfinite(count: int, gradient: str = "float32") -> Kernel:
    """Pointers: gradient [count] of that type -> scaler; infinity or NaN sets its ``found``."""
    require_count(count)
    require_floating(gradient=gradient)
    each = vector(gradient)
    name = f"find_nonfinite<{C_TYPES[gradient]}, {each}>"
    return Kernel(FILE, name, *flat(count, each), (np.uint64(count),), code=CODE)


def next_scale() -> Kernel:
    """Pointers: scaler. Computes the scale of the next step, after the update."""
    return Kernel(FILE, "next_scale", (1, 1, 1), (1, 1, 1), code=CODE)
