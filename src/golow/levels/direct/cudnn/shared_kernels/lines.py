"""Launches `lines.cu`."""

from __future__ import annotations

from typing import Literal

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import FLOATING, require_positive

FILE = FOLDER / "lines.cu"
THREADS, WARPS = 256, 8  # of a block
SHORT = 64  # elements of a line that a warp looks at alone to find ranks
FEW = 8  # elements that a thread sums alone
MANY = 8192  # lines, a thread each
FUNCTIONS = {"sum": "Sum", "product": "Product", "maximum": "Largest", "minimum": "Smallest"}


def fold(source: str, dtype: str, lines: int, length: int, function: str) -> Kernel:
    """Pointers: x [lines, length] -> y [lines]."""
    types = f"{C_TYPES[source]}, {_computed(source)}, {C_TYPES[dtype]}"
    return _of_lines(f"fold<{types}, {FUNCTIONS[function]}>", lines, length)


def place(source: str, lines: int, length: int, function: Literal["maximum", "minimum"]) -> Kernel:
    """Pointers: x [lines, length] -> places (int64) [lines]."""
    smallest = "true" if function == "minimum" else "false"
    return _of_lines(f"place<{C_TYPES[source]}, {_computed(source)}, {smallest}>", lines, length)


def sort(source: str, lines: int, length: int, descending: bool) -> Kernel:
    """Pointers: x [lines, length] -> values of the same type, places (int64)."""
    require_positive(lines=lines, length=length)
    count, parts = lines * length, WARPS if length > SHORT else 1
    order = "true" if descending else "false"
    name = f"sort<{C_TYPES[source]}, {_computed(source)}, {order}, {parts}>"
    blocks = -(-count * parts // THREADS)
    scalars = (np.int64(count), np.int64(length))
    return Kernel(FILE, name, (blocks, 1, 1), (THREADS, 1, 1), scalars)


def running_sums(source: str, dtype: str, outer: int, length: int, inner: int) -> Kernel:
    """Pointers: x [outer, length, inner] -> y of the same shape."""
    lines = outer * inner
    require_positive(lines=lines, length=length)
    types = f"<{C_TYPES[source]}, {_computed(dtype)}, {C_TYPES[dtype]}>"
    # A thread alone waits for each element; many threads of neighbouring lines read side by side.
    if length > FEW and (inner == 1 or lines < MANY):
        sizes = (np.int64(length), np.int64(inner))
        name = f"running_sums_of_block{types}"
        return Kernel(FILE, name, (lines, 1, 1), (THREADS, 1, 1), sizes)
    scalars = (np.int64(lines), np.int64(length), np.int64(inner))
    blocks = -(-lines // THREADS)
    return Kernel(FILE, f"running_sums{types}", (blocks, 1, 1), (THREADS, 1, 1), scalars)


def _of_lines(name: str, lines: int, length: int) -> Kernel:
    require_positive(lines=lines, length=length)
    return Kernel(FILE, name, (lines, 1, 1), (THREADS, 1, 1), (np.int64(length),))


def _computed(dtype: str) -> str:
    return "float" if dtype in FLOATING else "long long"
