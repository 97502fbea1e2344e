"""How `reduction.cu` is launched."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, FOLDER, Kernel

FILE = FOLDER / "reduction.cu"
LANES, WARPS = 32, 8
# The fewest rows that a block adds, and the number of blocks that fills the GPU.
LEAST_ROWS, ENOUGH_BLOCKS = 128, 264
MOST_OUTER = 65535  # limit of a grid's third axis


class Reduction(NamedTuple):
    """One launch from x to y, or two with ``partial`` float32 elements between them."""

    first: Kernel
    second: Kernel | None = None
    partial: int = 0


def reduction(
    source: str, dtype: str, outer: int, reduced: int, inner: int, factor: float = 1.0
) -> Reduction:
    """y [outer, inner] = factor * the sum of x [outer, reduced, inner] over its middle axis.

    Raises ValueError if outer exceeds the grid's limit.
    """
    if outer > MOST_OUTER:
        raise ValueError(f"a sum for {outer} rows; the limit is {MOST_OUTER}")
    if inner == 1:
        return Reduction(_rows(source, dtype, outer, reduced, factor))
    columns = -(-inner // LANES)
    parts = min(-(-reduced // LEAST_ROWS), -(-ENOUGH_BLOCKS // (columns * outer)))
    if parts <= 1:
        return Reduction(_columns(source, dtype, (outer, reduced, inner), 1, factor))
    first = _columns(source, "float32", (outer, reduced, inner), parts, 1.0)
    second = _columns("float32", dtype, (outer, parts, inner), 1, factor)
    return Reduction(first, second, outer * parts * inner)


def _columns(
    source: str, dtype: str, shape: tuple[int, int, int], parts: int, factor: float
) -> Kernel:
    outer, reduced, inner = shape
    return Kernel(
        FILE,
        f"sum_columns<{C_TYPES[source]}, {C_TYPES[dtype]}>",
        (-(-inner // LANES), parts, outer),
        (LANES, WARPS, 1),
        (np.int64(reduced), np.int64(inner), np.int32(parts), np.float32(factor)),
    )


def _rows(source: str, dtype: str, outer: int, reduced: int, factor: float) -> Kernel:
    return Kernel(
        FILE,
        f"sum_rows<{C_TYPES[source]}, {C_TYPES[dtype]}>",
        (1, 1, outer),
        (LANES * WARPS, 1, 1),
        (np.int64(reduced), np.float32(factor)),
    )
