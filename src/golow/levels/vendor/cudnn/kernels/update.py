"""SGD over a flat array of all parameters, and loss scaling for float16."""

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

# The state of loss scaling in device memory; torch.amp.GradScaler begins with a scale of 65536.
SCALER = np.dtype([("scale", np.float32), ("good_steps", np.int32), ("found", np.int32)])


def sgd(
    count: int,
    momentum: float,
    weight_decay: float,
    gradient: str = "float32",
    copy: str = "float32",
) -> Kernel:
    """Pointers: gradient [count] of the type ``gradient``, parameter and momentum [count]
    (float32), rate (float32 scalar), scaler (`SCALER`) or 0, copy [count] of the type ``copy``
    or 0.

    Parameter and momentum are updated in place, and the copy gets the new parameters. With a
    scaler gradients are divided by its scale, and nothing is written once it has found one that is
    not finite. Raises ValueError for types that are not floating point.
    """
    require_count(count)
    require_floating(gradient=gradient, copy=copy)
    name = f"sgd<{C_TYPES[gradient]}, {C_TYPES[copy]}>"
    scalars = (np.uint64(count), np.float32(momentum), np.float32(weight_decay))
    return Kernel("update.cu", name, *flat(count, 4), scalars, code=VECTOR)


def find_nonfinite(count: int, gradient: str = "float32") -> Kernel:
    """Pointers: gradient [count] of that type -> scaler, whose ``found`` infinity or NaN sets."""
    require_count(count)
    require_floating(gradient=gradient)
    each = vector(gradient)
    name = f"find_nonfinite<{C_TYPES[gradient]}, {each}>"
    return Kernel("update.cu", name, *flat(count, each), (np.uint64(count),), code=VECTOR)


def next_scale() -> Kernel:
    """Pointers: scaler; the scale of the next step, after `sgd`."""
    return Kernel("update.cu", "next_scale", (1, 1, 1), (1, 1, 1), code=VECTOR)
