"""Kernels of `onednn`, compiled and run in this process."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.onednn.kernels import Kernel

if TYPE_CHECKING:
    from golow.levels.direct.onednn.run.kernel_compilation import Workshop


def run(kernel: Kernel, *arrays: np.ndarray) -> None:
    """Compile the kernel and run it on these arrays, inputs first."""
    from support.direct.onednn_in_process import workshop

    run_by(workshop(), kernel, *arrays)


def run_by(workshop: Workshop, kernel: Kernel, *arrays: np.ndarray) -> None:
    """The same with another compiler or cache."""
    from golow.levels.direct.onednn.run.kernel_compilation import pool

    function = workshop.functions([kernel.code])[kernel.code]
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    function(pointers, (ctypes.c_long * len(kernel.numbers))(*kernel.numbers), pool())
