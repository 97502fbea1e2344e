"""Threads for rows [rows, columns]."""

from __future__ import annotations

import math
from typing import NamedTuple

from golow.levels.vendor.cudnn.kernels import FOLDER, ITEM_BYTES
from golow.levels.vendor.cudnn.kernels.geometry import VECTOR

ROWS = VECTOR + (FOLDER / "rows.cuh").read_text()  # included before these kernels
# Floats of a row that a thread keeps in registers.
MOST_HELD = 64
GROUPED_THREADS = 128


class Group(NamedTuple):
    """Threads of a warp that hold a row: columns of a vector, threads, vectors of a thread."""

    width: int
    lanes: int
    items: int

    def blocks(self, rows: int) -> int:
        """Blocks of `GROUPED_THREADS` for so many rows."""
        return -(-rows * self.lanes // GROUPED_THREADS)

    def __str__(self) -> str:
        return f"{self.width}, {self.lanes}, {self.items}"


def group_for(columns: int, *dtypes: str) -> Group | None:
    """The threads that hold a row of these types; None if it is too long for a warp's registers."""
    width = math.gcd(columns, 16 // min(ITEM_BYTES[dtype] for dtype in dtypes))
    vectors = columns // width
    lanes = min(32, 1 << (vectors - 1).bit_length())
    items = -(-vectors // lanes)
    return Group(width, lanes, items) if items * width <= MOST_HELD else None


def threads_for(columns: int) -> int:
    """Threads of a block that takes one row: a warp for short rows, otherwise about eight columns
    for each thread."""
    if columns <= 128:
        return 32
    return 128 if columns <= 2048 else 512
