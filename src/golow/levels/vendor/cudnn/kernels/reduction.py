"""How `reduction.cu` is launched."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, FOLDER, ITEM_BYTES, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import LARGEST_INT, VECTOR

FILE = FOLDER / "reduction.cu"
THREADS = 256
# Vectors of a row that a block takes: what is left of 256 threads takes further rows.
MOST_VECTORS = 64
# The fewest vectors that a thread adds, and the number of blocks that fills the GPU: four on each
# of 132 multiprocessors.
LEAST_EACH, ENOUGH_BLOCKS = 8, 528


class Reduction(NamedTuple):
    """One launch from x to y, or two with ``partial`` float32 elements between them."""

    first: Kernel
    second: Kernel | None = None
    partial: int = 0


class Tile(NamedTuple):
    """What a block takes of rows: elements of a vector, vectors, rows at once; tiles: blocks for a
    row."""

    width: int
    vectors: int
    rows: int
    tiles: int

    @classmethod
    def of(cls, inner: int, pitch: int, dtype: str) -> Tile:
        """Tiles of the same size, so that few threads are idle, for rows of ``inner`` elements with
        ``pitch`` elements from one to the next."""
        width = math.gcd(pitch, 16 // ITEM_BYTES[dtype])
        groups = -(-inner // width)
        tiles = -(-groups // MOST_VECTORS)
        vectors = -(-groups // tiles)
        return cls(width, vectors, THREADS // vectors, tiles)


def reduction(
    source: str,
    dtype: str,
    outer: int,
    reduced: int,
    inner: int,
    factor: float = 1.0,
    pitch: int | None = None,
) -> Reduction:
    """y [outer, inner] = factor * the sum of x [outer, reduced, inner] over its middle axis. pitch:
    elements from one row of x to the next, where there are gaps; x begins at a multiple of 16 bytes
    and has memory up to the end of its last vector.

    Raises ValueError if there are more blocks than a grid takes.
    """
    pitch = inner if pitch is None else pitch
    tile = Tile.of(inner, pitch, source)
    if outer * tile.tiles > LARGEST_INT:
        raise ValueError(f"a sum for {outer} rows; the limit is {LARGEST_INT // tile.tiles}")
    if inner == pitch == 1:
        return Reduction(_rows(source, dtype, outer, reduced, factor))
    parts = min(reduced // (tile.rows * LEAST_EACH), -(-ENOUGH_BLOCKS // (tile.tiles * outer)))
    if parts <= 1:
        return Reduction(_columns(source, dtype, (outer, reduced, inner), pitch, 1, factor))
    first = _columns(source, "float32", (outer, reduced, inner), pitch, parts, 1.0)
    second = _columns("float32", dtype, (outer, parts, inner), inner, 1, factor)
    return Reduction(first, second, outer * parts * inner)


def _columns(
    source: str, dtype: str, shape: tuple[int, int, int], pitch: int, parts: int, factor: float
) -> Kernel:
    outer, reduced, inner = shape
    tile = Tile.of(inner, pitch, source)
    return Kernel(
        FILE,
        f"sum_columns<{C_TYPES[source]}, {C_TYPES[dtype]}, {tile.width}>",
        (outer * tile.tiles, parts, 1),
        (tile.vectors, tile.rows, 1),
        (
            *(np.int64(reduced), np.int64(inner), np.int64(pitch)),
            *(np.int32(tile.tiles), np.int32(parts)),
            np.float32(factor),
        ),
        code=VECTOR,
    )


def _rows(source: str, dtype: str, outer: int, reduced: int, factor: float) -> Kernel:
    return Kernel(
        FILE,
        f"sum_rows<{C_TYPES[source]}, {C_TYPES[dtype]}>",
        (outer, 1, 1),
        (THREADS, 1, 1),
        (np.int64(reduced), np.float32(factor)),
        code=VECTOR,
    )
