"""Launches `reduction.cu`."""

from __future__ import annotations

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import ceiling, power_of_two
from golow.levels.direct.cudnn.shared_kernels.columns import (
    AT_ONCE,
    COLUMNS,
    ENOUGH_BLOCKS,
    THREADS,
    Sums,
    tiling,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import LARGEST_INT, channel_vector

FILE = FOLDER / "reduction.cu"
# Vectors of a row that a warp adds in two rounds of loads; this many rows fill the GPU with warps.
SHORT, MANY = 2 * AT_ONCE * 32, 8 * ENOUGH_BLOCKS


def reduction(
    source: str,
    dtype: str,
    outer: int,
    reduced: int,
    inner: int,
    factor: float = 1.0,
    pitch: int | None = None,
) -> Sums:
    """y [outer, inner] = factor * the sum of x [outer, reduced, inner] over its middle axis. pitch:
    elements from one row of x to the next, where there are gaps.

    Pointers: x, y. Raises ValueError if there are more blocks than a grid takes.
    """
    pitch = inner if pitch is None else pitch
    types = f"{C_TYPES[source]}, {C_TYPES[dtype]}"
    if inner == pitch == 1:
        return _rows(types, outer, reduced, source, factor)
    tiles = tiling(outer, reduced, pitch, source)
    sizes = (np.int64(reduced), np.int64(inner), np.int64(pitch), np.int32(tiles.tiles))
    scalars = (*sizes, np.float32(factor))
    name = f"sum_columns<{types}, {tiles.width}, {tiles.threads}>"
    return tiles.sums(FILE, name, scalars, outer=outer)


def _rows(types: str, outer: int, reduced: int, source: str, factor: float) -> Sums:
    """Threads of a warp for each row, or blocks for each of a few long ones. Vectors are along the
    rows."""
    width = channel_vector(source, reduced)
    vectors, types = reduced // width, f"{types}, {width}"
    if vectors > SHORT and outer < MANY:
        tiles = tiling(outer, vectors, 1, source)
        scalars = (np.int64(vectors), np.float32(factor))
        return tiles.sums(FILE, f"sum_rows<{types}, {tiles.threads}>", scalars, outer=outer)
    lanes = min(32, power_of_two(vectors))
    blocks = ceiling(outer * lanes, THREADS)
    if blocks > LARGEST_INT:
        raise ValueError(f"a sum for {outer} rows; the limit is {LARGEST_INT * THREADS // lanes}")
    sizes = (np.int64(outer), np.int64(vectors), np.float32(factor))
    name, block = f"sum_short_rows<{types}, {lanes}>", (THREADS, 1, 1)
    return Sums(Kernel(FILE, name, (blocks, 1, 1), block, sizes, code=COLUMNS))
