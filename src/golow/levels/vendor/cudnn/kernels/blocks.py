"""What operations over rows of channels have in common: limits of a clip, the size of a grid, and
the record of an operation that takes several launches."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from golow.levels.vendor.cudnn.kernels import FOLDER, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import VECTOR

Clip = tuple[float, float]

NO_CLIP: Clip = (-inf, inf)
RELU: Clip = (0.0, inf)

# Blocks that keep a large GPU busy: four on each of 132 multiprocessors. A constant, so that sums
# are taken in the same order on every GPU.
FULL_GRID = 528
CODE = VECTOR + (FOLDER / "blocks.cuh").read_text()  # stands before these kernels


class Launches(NamedTuple):
    """An operation. Its kernels are launched in order, each with the same pointers. The last of
    these may be called scratch: so many float32 elements with any content, and 0 where none are
    needed."""

    kernels: tuple[Kernel, ...]
    scratch: int = 0


def ceiling(amount: int, size: int) -> int:
    """How many pieces of that size cover the amount."""
    return -(-amount // size)


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below the number."""
    return 1 << (number - 1).bit_length()


def integers(*numbers: int) -> tuple[np.generic, ...]:
    """Scalars that a kernel takes as int."""
    return tuple(np.int32(number) for number in numbers)


def floats(*numbers: float) -> tuple[np.generic, ...]:
    """Scalars that a kernel takes as float."""
    return tuple(np.float32(number) for number in numbers)
