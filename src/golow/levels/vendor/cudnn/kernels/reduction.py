"""How `reduction.cu` is launched."""

from __future__ import annotations

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, FOLDER
from golow.levels.vendor.cudnn.kernels.columns import Sums, tiling
from golow.levels.vendor.cudnn.kernels.geometry import channel_vector

FILE = FOLDER / "reduction.cu"


def reduction(
    source: str, dtype: str, outer: int, reduced: int, inner: int, factor: float = 1.0
) -> Sums:
    """y [outer, inner] = factor * the sum of x [outer, reduced, inner] over its middle axis.

    Pointers: x, y. Raises ValueError if there are more blocks than a grid takes.
    """
    types = f"{C_TYPES[source]}, {C_TYPES[dtype]}"
    if inner == 1:  # vectors lie along the sum, as rows of one column
        width = channel_vector(source, reduced)
        tiles = tiling(outer, reduced // width, 1, source)
        sizes = (np.int64(reduced // width), np.float32(factor))
        return tiles.sums(FILE, f"sum_rows<{types}, {width}, {tiles.threads}>", sizes, outer=outer)
    tiles = tiling(outer, reduced, inner, source)
    scalars = (np.int64(reduced), np.int64(inner), np.int32(tiles.tiles), np.float32(factor))
    name = f"sum_columns<{types}, {tiles.width}, {tiles.threads}>"
    return tiles.sums(FILE, name, scalars, outer=outer)
