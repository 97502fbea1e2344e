"""How sums over rows are divided into blocks, for the kernels that `columns.cuh` serves."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import ceiling, power_of_two
from golow.levels.direct.cudnn.shared_kernels.geometry import LARGEST_INT, VECTOR

COLUMNS = VECTOR + (FOLDER / "columns.cuh").read_text()  # included before these kernels
# Rows that a thread reads at once.
AT_ONCE = 4
# Bytes of a row that a block takes: a cache line, or a sector of one, the least that memory sends.
LINE, SECTOR = 128, 32
# Threads of a block, and of one that takes all rows alone: its launch ends sooner than one whose
# blocks wait for one another.
THREADS, THREADS_ALONE = 256, 512
# Blocks that fill the GPU, four on each of 132 multiprocessors, if they read one tensor.
ENOUGH_BLOCKS = 528


class Sums(NamedTuple):
    """A launch that ends with the sums. Its last two pointers are memory for ``partial`` float32
    elements of any content, and ``arrivals`` uint32 counters that are zero before and afterwards;
    both are absent if there are none."""

    kernel: Kernel
    partial: int = 0
    arrivals: int = 0


class Tiling(NamedTuple):
    """Blocks of lanes x walkers threads: lanes take adjacent vectors of ``width`` columns, walkers
    different rows. The grid has tiles of columns and parts of the rows. threads: at least those of
    a block, a constant of the kernel."""

    width: int
    lanes: int
    walkers: int
    tiles: int
    threads: int
    parts: int = 1

    def sums(
        self,
        file: Path,
        name: str,
        scalars: tuple[np.generic, ...],
        *,
        outer: int = 1,
        each: int = 1,
        code: str = COLUMNS,
    ) -> Sums:
        """The launch of that kernel, which computes ``each`` sums for each column of ``outer``
        tensors."""
        groups = outer * self.tiles
        grid, block = (groups, self.parts, 1), (self.lanes, self.walkers, 1)
        kernel = Kernel(file, name, grid, block, scalars, code=code)
        if self.parts == 1:
            return Sums(kernel)
        of_part = 4 * ceiling(each * self.lanes * self.width, 4)
        return Sums(kernel, groups * self.parts * of_part, groups)


def tiling(outer: int, rows: int, columns: int, *dtypes: str) -> Tiling:
    """The blocks for sums over the rows of [outer, rows, columns] of tensors of these types. It
    does not depend on the GPU, so that every GPU adds in the same order.

    Raises ValueError if there are more blocks than a grid takes.
    """
    wide = _tiles(columns, LINE, THREADS, dtypes)
    if outer * wide.tiles > LARGEST_INT:
        raise ValueError(f"a sum for {outer} rows; the limit is {LARGEST_INT // wide.tiles}")
    needed = power_of_two(ceiling(rows, AT_ONCE))
    if needed <= wide.walkers:
        return _widened(outer, columns, needed, wide, dtypes)
    narrow = _tiles(columns, SECTOR, THREADS_ALONE, dtypes)
    parts = ceiling(ENOUGH_BLOCKS, len(dtypes) * outer * wide.tiles)
    if parts > 1 and rows <= AT_ONCE * narrow.walkers:
        return narrow._replace(walkers=min(narrow.walkers, needed))
    return wide._replace(parts=min(parts, ceiling(rows, AT_ONCE * wide.walkers)))


def _widened(
    outer: int, columns: int, walkers: int, found: Tiling, dtypes: tuple[str, ...]
) -> Tiling:
    """Blocks of all threads for few rows: they take more columns, as long as there are enough."""
    most = 2 * LINE
    while found.lanes * walkers < THREADS:
        wider = _tiles(columns, most, THREADS, dtypes)
        full = wider.lanes * walkers > THREADS or wider.lanes == found.lanes
        if full or outer * wider.tiles < ENOUGH_BLOCKS:
            break
        found, most = wider, 2 * most
    return found._replace(walkers=walkers)


def _tiles(columns: int, most: int, threads: int, dtypes: tuple[str, ...]) -> Tiling:
    """Tiles of the same size, so that few threads are idle, of at most this many bytes of the
    narrowest type."""
    item = min(ITEM_BYTES[dtype] for dtype in dtypes)
    width = math.gcd(columns, 16 // item)
    vectors = columns // width
    tiles = ceiling(vectors, most // (width * item))
    lanes = ceiling(vectors, tiles)
    return Tiling(width, lanes, threads // lanes, tiles, threads)
