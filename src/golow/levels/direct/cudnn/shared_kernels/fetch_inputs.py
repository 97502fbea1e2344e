"""Reads the current batch of an input whose batches are all in device memory."""

from __future__ import annotations

import math

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.cast import require_cast
from golow.levels.direct.cudnn.shared_kernels.geometry import (
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

FILE = FOLDER / "fetch_inputs.cu"
BATCHES = (FOLDER / "batches.cuh").read_text()  # included before kernels that read inputs
CODE = VECTOR + BATCHES
NARROW = 8  # up to this many padded channels, one thread takes all channels of a pixel
TILE = 32


def fetch_image(source: str, dtype: str, n: int, c: int, h: int, w: int, padded: int) -> Kernel:
    """Pointers: all batches [batches, n, c, h, w] of ``source``, position (int32) ->
    [n, h, w, padded] of ``dtype``, channels from c on zero."""
    _require_image(source, dtype, n, c, h, w, padded)
    if h * w == 1 and padded == c:
        return fetch_rows(source, dtype, n * c)
    types, batch = f"{C_TYPES[source]}, {C_TYPES[dtype]}", np.uint64(n * c * h * w)
    sizes = (np.int32(c), np.int32(h * w))
    if padded <= NARROW:
        grid, block = rows_of(n, h * w)
        expression = f"fetch_narrow<{types}, {padded}>"
        return Kernel(FILE, expression, grid, block, (batch, *sizes), code=CODE)
    grid = _tile_grid(n, padded, h * w)
    scalars = (batch, *sizes, np.int32(padded))
    return Kernel(FILE, f"fetch_tiled<{types}>", grid, (TILE, 8, 1), scalars, code=CODE)


def fetch_rows(source: str, dtype: str, count: int) -> Kernel:
    """Pointers: all batches of ``count`` values of ``source``, position (int32) -> ``count`` values
    of ``dtype``. Raises ValueError for the casts that `cast.cast` refuses."""
    require_cast(source, dtype)
    require_count(count)
    each = math.gcd(count, vector(source, dtype))
    name = f"fetch_rows<{C_TYPES[source]}, {C_TYPES[dtype]}, {each}>"
    return Kernel(FILE, name, *flat(count, each), (np.uint64(count),), code=CODE)


def _tile_grid(n: int, rows: int, columns: int) -> Grid:
    """One block for each tile of n matrices. Raises ValueError if they exceed a grid."""
    blocks = n * -(-rows // TILE) * -(-columns // TILE)
    if blocks > LARGEST_INT:
        raise ValueError(f"{n} matrices of {rows} by {columns} are more than one launch can take")
    return blocks, 1, 1


def _require_image(source: str, dtype: str, n: int, c: int, h: int, w: int, padded: int) -> None:
    """Raises ValueError for types and sizes that no image kernel supports."""
    require_floating(source=source, dtype=dtype)
    require_positive(n=n, c=c, h=h, w=w, pixels=h * w)
    if padded < c:
        raise ValueError(f"padded is {padded}, fewer than the {c} channels")
