"""Conversions between layouts and types of a tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from golow.levels.direct.cudnn.kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.kernels.geometry import (
    FLOATING,
    LARGEST_INT,
    VECTOR,
    Grid,
    flat,
    require_count,
    require_floating,
    require_positive,
    rows_of,
    vector,
)
from golow.levels.direct.cudnn.problems.element_types import C_TYPES

FILE = FOLDER / "layout.cu"
NARROW = 8  # up to this many padded channels, one thread takes all channels of a pixel
TILE = 32


def to_channels_last(
    source: str, dtype: str, n: int, c: int, h: int, w: int, padded: int
) -> Kernel:
    """Pointers: [n, c, h, w] of ``source`` -> [n, h, w, padded] of ``dtype``, channels from c on
    zero. n is the number of images, or of a weight's filters."""
    require_image(source, dtype, n, c, h, w, padded)
    if h * w == 1 and padded == c:
        return cast(source, dtype, n * c)
    if padded <= NARROW:
        name = f"narrow_to_channels_last<{C_TYPES[source]}, {C_TYPES[dtype]}, {padded}>"
        return narrow(FILE, name, n, (c, h * w))
    grid = tile_grid(n, padded, h * w)
    return _tiled(source, dtype, grid, (c, h * w, h * w, padded))


def to_rows(source: str, dtype: str, n: int, c: int, h: int, w: int, padded: int) -> Kernel:
    """Pointers: [n, h, w, padded] of ``source`` -> [n, c, h, w] of ``dtype``: the inverse."""
    require_image(source, dtype, n, c, h, w, padded)
    if h * w == 1 and padded == c:
        return cast(source, dtype, n * c)
    if padded <= NARROW:
        name = f"narrow_to_rows<{C_TYPES[source]}, {C_TYPES[dtype]}, {padded}>"
        return narrow(FILE, name, n, (c, h * w))
    return _tiled(source, dtype, tile_grid(n, h * w, c), (h * w, c, padded, h * w))


def transpose(dtype: str, rows: int, columns: int) -> Kernel:
    """Pointers: [rows, columns] -> [columns, rows], of the same type."""
    require_floating(dtype=dtype)
    require_positive(rows=rows, columns=columns)
    grid = tile_grid(1, rows, columns)
    return _tiled(dtype, dtype, grid, (rows, columns, columns, rows))


def cast(source: str, dtype: str, count: int) -> Kernel:
    """Pointers: count values of ``source`` -> as many of ``dtype``; a copy if the types are equal.

    Raises ValueError from floating point to integers, and between two integer types.
    """
    require_cast(source, dtype)
    require_count(count)
    each = vector(source, dtype)
    name = f"cast<{C_TYPES[source]}, {C_TYPES[dtype]}, {each}>"
    return Kernel(FILE, name, *flat(count, each), (np.uint64(count),), code=VECTOR)


def narrow(file: Path, name: str, n: int, scalars: tuple[int, ...], code: str = VECTOR) -> Kernel:
    """A kernel with one thread for each pixel; the last of the scalars is the number of pixels."""
    grid, block = rows_of(n, scalars[-1])
    return Kernel(file, name, grid, block, tuple(map(np.int32, scalars)), code=code)


def tile_grid(n: int, rows: int, columns: int) -> Grid:
    """One block for each tile of n matrices. Raises ValueError if they exceed a grid."""
    blocks = n * -(-rows // TILE) * -(-columns // TILE)
    if blocks > LARGEST_INT:
        raise ValueError(f"{n} matrices of {rows} by {columns} are more than one launch can take")
    return blocks, 1, 1


def _tiled(source: str, dtype: str, grid: Grid, scalars: tuple[int, ...]) -> Kernel:
    name = f"tiled<{C_TYPES[source]}, {C_TYPES[dtype]}>"
    sizes = tuple(map(np.int32, scalars))
    return Kernel(FILE, name, grid, (TILE, 8, 1), sizes, code=VECTOR)


def require_image(source: str, dtype: str, n: int, c: int, h: int, w: int, padded: int) -> None:
    """Raises ValueError for types and sizes that no image kernel supports."""
    require_floating(source=source, dtype=dtype)
    require_positive(n=n, c=c, h=h, w=w, pixels=h * w)
    if padded < c:
        raise ValueError(f"padded is {padded}, fewer than the {c} channels")


def require_cast(source: str, dtype: str) -> None:
    """Raises ValueError for unknown types, and if a cast would round to integers."""
    for name in (source, dtype):
        if name not in C_TYPES:
            raise ValueError(f"no type {name}; it must be one of {', '.join(C_TYPES)}")
    if dtype not in FLOATING and source != dtype:
        raise ValueError(f"no cast from {source} to {dtype}; cast to one of {', '.join(FLOATING)}")
