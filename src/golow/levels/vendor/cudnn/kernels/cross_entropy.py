"""Cross entropy of rows of logits and its gradient, in one kernel."""

from __future__ import annotations

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, FOLDER, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import require_floating, require_positive
from golow.levels.vendor.cudnn.kernels.rows import ROWS, threads_for

FILE = FOLDER / "cross_entropy.cu"
MOST_BLOCKS = 1024  # as in cross_entropy.cu


def cross_entropy(source: str, rows: int, columns: int, mean: bool, ignored: int = -100) -> Kernel:
    """Pointers: logits [rows, columns] of ``source``, target [rows] (int64), gradient (float32
    scalar: that of the loss, times any loss scale) -> loss (float32 scalar), dlogits of ``source``.

    The sums of the blocks are stored in the module: never launch it on two streams at once.
    """
    require_floating(source=source)
    require_positive(rows=rows, columns=columns)
    threads = threads_for(columns)
    scalars = (np.int32(rows), np.int32(columns), np.int32(mean), np.int64(ignored))
    name = f"cross_entropy<{C_TYPES[source]}, {threads}>"
    grid = (min(rows, MOST_BLOCKS), 1, 1)
    return Kernel(FILE, name, grid, (threads, 1, 1), scalars, code=ROWS)
