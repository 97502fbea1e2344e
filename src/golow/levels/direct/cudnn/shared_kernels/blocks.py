"""Parts shared by operations over rows of channels: the size of a grid, and the record
of an operation that takes several launches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR

# Blocks that fill a large GPU: four on each of 132 multiprocessors. A constant, so that every GPU
# adds in the same order.
FULL_GRID = 528
CODE = VECTOR + (FOLDER / "blocks.cuh").read_text()  # included before these kernels


class Launches(NamedTuple):
    """An operation. Its kernels are launched in order, all with the same pointers. The last pointer
    may be scratch: memory for ``scratch`` float32 elements with any content; 0 if not needed.

    touched: which pointers each kernel reads or writes, by their indices; all if empty.
    """

    kernels: tuple[Kernel, ...]
    scratch: int = 0
    touched: tuple[frozenset[int], ...] = ()


def ceiling(amount: int, size: int) -> int:
    """Return how many pieces of that size cover the amount."""
    return -(-amount // size)


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least the number."""
    return 1 << (number - 1).bit_length()


def integers(*numbers: int) -> tuple[np.generic, ...]:
    """Scalars that a kernel takes as int."""
    return tuple(np.int32(number) for number in numbers)


def floats(*numbers: float) -> tuple[np.generic, ...]:
    """Scalars that a kernel takes as float."""
    return tuple(np.float32(number) for number in numbers)
