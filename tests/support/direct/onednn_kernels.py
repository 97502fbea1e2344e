"""Kernels of `onednn`, compiled and run in this process."""

from __future__ import annotations

import ctypes

import numpy as np

from golow.levels.direct.onednn.kernels import Kernel


def run(kernel: Kernel, *arrays: np.ndarray) -> None:
    """Compile the kernel and run it on these arrays, inputs first."""
    from golow.levels.direct.onednn.run.kernel_compilation import pool
    from support.direct.onednn_in_process import workshop

    function = workshop().functions([kernel.code])[kernel.code]
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    function(pointers, (ctypes.c_long * len(kernel.numbers))(*kernel.numbers), pool())
