"""How `strided.cu` is launched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, FOLDER, Kernel

FILE = FOLDER / "strided.cu"
AXES = 5
THREADS, MOST_BLOCKS = 256, 132 * 8


def strided_copy(
    source: str,
    dtype: str,
    shape: Sequence[int],
    x_strides: Sequence[int],
    y_strides: Sequence[int],
    x_start: int = 0,
    y_start: int = 0,
) -> Kernel:
    """Read x, write y; strides and starts in elements, one stride for each axis of ``shape``.

    Raises ValueError for more than five axes.
    """
    if len(shape) > AXES:
        raise ValueError(f"a copy over {len(shape)} axes; the limit is {AXES}")
    lack = AXES - len(shape)
    sizes = (*[1] * lack, *shape)
    strides = [(*[0] * lack, *given) for given in (x_strides, y_strides)]
    count = math.prod(shape)
    return Kernel(
        FILE,
        f"strided_copy<{C_TYPES[source]}, {C_TYPES[dtype]}>",
        (max(1, min(-(-count // THREADS), MOST_BLOCKS)), 1, 1),
        (THREADS, 1, 1),
        (
            np.int64(count),
            *(np.int32(size) for size in sizes[1:]),
            *(np.int64(number) for number in (x_start, *strides[0], y_start, *strides[1])),
        ),
    )
