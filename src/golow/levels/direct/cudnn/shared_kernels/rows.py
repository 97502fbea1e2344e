"""Threads for rows [rows, columns]."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.columns import COLUMNS
from golow.levels.direct.cudnn.shared_kernels.geometry import require_positive

ROWS = COLUMNS + (FOLDER / "rows.cuh").read_text()  # included before these kernels
# Floats of a row that a thread keeps in registers.
MOST_HELD = 64
GROUPED_THREADS = 128
# Limits of blocks that also add columns: floats of a row that a thread holds at most, four times in
# registers; the registers beside them; those of a multiprocessor for each thread of a block.
MOST_SUMMED, OTHER_REGISTERS, REGISTERS = 32, 40, 512
# Such blocks fill this many multiprocessors, and each group of threads takes this many rows at
# least.
MULTIPROCESSORS, LEAST_ROWS = 132, 4


class Group(NamedTuple):
    """Threads of a warp that hold a row: columns of a vector, threads, vectors of a thread."""

    width: int
    lanes: int
    items: int

    def blocks(self, rows: int) -> int:
        """Blocks of `GROUPED_THREADS` for this many rows."""
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


def by_rows(
    file: Path,
    name: str,
    dtypes: tuple[str, ...],
    rows: int,
    columns: int,
    further: tuple[np.generic, ...] = (),
    narrow: tuple[str, ...] = (),
) -> Kernel:
    """A kernel of that name for rows of these types. Rows are held in registers, several in a block
    (``NAME_held``); a block takes each row that is too long. narrow: further types, for which no
    thread takes more columns."""
    require_positive(rows=rows, columns=columns)
    types = ", ".join(C_TYPES[dtype] for dtype in (*dtypes, *narrow))
    group = group_for(columns, *dtypes)
    if group is not None:
        sizes = (np.int32(rows), np.int32(columns), *further)
        grid, block = (group.blocks(rows), 1, 1), (GROUPED_THREADS, 1, 1)
        return Kernel(file, f"{name}_held<{types}, {group}>", grid, block, sizes, code=ROWS)
    threads = threads_for(columns)
    scalars = (np.int32(columns), *further)
    expression = f"{name}<{types}, {threads}>"
    return Kernel(file, expression, (rows, 1, 1), (threads, 1, 1), scalars, code=ROWS)


def blocks_of_sums(rows: int, columns: int, *dtypes: str) -> int:
    """How many blocks take all rows of these types, one after the other, and add up columns at the
    same time; 0 if the rows are too long, or too few: then reading them once more costs less."""
    group = group_for(columns, *dtypes)
    if group is None or group.width * group.items > MOST_SUMMED:
        return 0
    registers = 4 * group.width * group.items + OTHER_REGISTERS
    blocks = rows * group.lanes // (GROUPED_THREADS * LEAST_ROWS)
    return min(MULTIPROCESSORS * (REGISTERS // registers), blocks) * (blocks >= MULTIPROCESSORS)


def summed_rows(
    file: Path, name: str, dtypes: tuple[str, ...], rows: int, columns: int, blocks: int
) -> Kernel:
    """A kernel of that name for rows of these types, held in registers, in this many blocks
    (``NAME_summed``)."""
    require_positive(rows=rows, columns=columns)
    types, group = ", ".join(C_TYPES[dtype] for dtype in dtypes), group_for(columns, *dtypes)
    sizes = (np.int32(rows), np.int32(columns))
    grid, block = (blocks, 1, 1), (GROUPED_THREADS, 1, 1)
    return Kernel(file, f"{name}_summed<{types}, {group}>", grid, block, sizes, code=ROWS)
