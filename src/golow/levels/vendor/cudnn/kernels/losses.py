"""Softmax, the negative log likelihood and cross entropy of rows of logits."""

from __future__ import annotations

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import require_floating, require_positive

MOST_BLOCKS = 1024  # as in losses.cu
ONE_BLOCK = 1024  # threads of a kernel that runs in one block


def softmax(source: str, rows: int, columns: int, logarithm: bool) -> Kernel:
    """Pointers: x [rows, columns] of ``source`` -> y of float32, log softmax with ``logarithm``."""
    return _of_rows("softmax", source, rows, columns, logarithm)


def softmax_backward(dtype: str, rows: int, columns: int, logarithm: bool) -> Kernel:
    """Pointers: gradient and result [rows, columns] (float32) -> dx of ``dtype``."""
    return _of_rows("softmax_backward", dtype, rows, columns, logarithm)


def nll_loss(rows: int, columns: int, mean: bool, ignored: int = -100) -> Kernel:
    """Pointers: log softmax [rows, columns] (float32), target [rows] (int64) -> loss, weight
    (float32 scalars). weight: how many targets are not ``ignored``."""
    require_positive(rows=rows, columns=columns)
    scalars = (np.int32(rows), np.int32(columns), np.int32(mean), np.int64(ignored))
    return Kernel("losses.cu", f"nll_loss<{ONE_BLOCK}>", (1, 1, 1), (ONE_BLOCK, 1, 1), scalars)


def nll_loss_backward(rows: int, columns: int, mean: bool, ignored: int = -100) -> Kernel:
    """Pointers: gradient (float32 scalar), target [rows] (int64), weight (float32 scalar) ->
    gradient of the log softmax [rows, columns] (float32)."""
    require_positive(rows=rows, columns=columns)
    threads = _threads(columns)
    scalars = (np.int32(columns), np.int32(mean), np.int64(ignored))
    name = f"nll_loss_backward<{threads}>"
    return Kernel("losses.cu", name, (rows, 1, 1), (threads, 1, 1), scalars)


def cross_entropy(source: str, rows: int, columns: int, mean: bool, ignored: int = -100) -> Kernel:
    """Pointers: logits [rows, columns] of ``source``, target [rows] (int64), gradient (float32
    scalar: that of the loss, times any loss scale) -> loss (float32 scalar), dlogits of ``source``.

    The kernel keeps its blocks' sums in the module: never launch it on two streams at once.
    """
    require_floating(source=source)
    require_positive(rows=rows, columns=columns)
    threads = _threads(columns)
    scalars = (np.int32(rows), np.int32(columns), np.int32(mean), np.int64(ignored))
    name = f"cross_entropy<{C_TYPES[source]}, {threads}>"
    return Kernel("losses.cu", name, (min(rows, MOST_BLOCKS), 1, 1), (threads, 1, 1), scalars)


def _of_rows(name: str, dtype: str, rows: int, columns: int, logarithm: bool) -> Kernel:
    require_floating(dtype=dtype)
    require_positive(rows=rows, columns=columns)
    threads = _threads(columns)
    expression = f"{name}<{C_TYPES[dtype]}, {threads}, {str(logarithm).lower()}>"
    scalars = (np.int32(columns),)
    return Kernel("losses.cu", expression, (rows, 1, 1), (threads, 1, 1), scalars)


def _threads(columns: int) -> int:
    """A warp a row where rows are short, else about eight columns a thread."""
    if columns <= 128:
        return 32
    return 128 if columns <= 2048 else 512
