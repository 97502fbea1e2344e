"""Launches attention over a cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.products import Placed
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import (
    ceiling,
    floats,
    integers,
    power_of_two,
)
from golow.levels.direct.cudnn.shared_kernels.columns import COLUMNS, Sums
from golow.levels.direct.cudnn.shared_kernels.geometry import MOST_PARTS

FILE = FOLDER / "cached_attention.cu"
THREADS, KEYS = 128, 64  # as in the file
ENOUGH_BLOCKS = 264  # two on each of 132 multiprocessors
REGISTERS = 32  # of sums that a thread has


def cached_attention(
    places: Sequence[Placed], dtypes: tuple[str, str], scale: float, window: int = 0
) -> Sums:
    """Pointers: query, key, value, position (int64), output, then those of `Sums`. places: of
    query, key, value and output; dtypes: of query and output, and of the caches; window: as of
    `CachedAttention`. Raises ValueError for what the kernel does not take."""
    images, heads, rows, inner = places[0].shape
    groups, longest, width = places[2].shape[1:]
    sharing = heads // groups
    steps = [_steps(place) for place in places]
    vector = math.gcd(
        16 // ITEM_BYTES[dtypes[1]], inner, width, *(step for item in steps[1:3] for step in item)
    )
    taken = min(power_of_two(sharing * rows), 8, REGISTERS // vector)
    tiles = ceiling(sharing * rows, taken)
    if width // vector > THREADS or max(images * groups, tiles) > MOST_PARTS:
        raise ValueError(f"heads of {width} elements and {tiles} tiles of rows are too many")
    wanted = ceiling(ENOUGH_BLOCKS, images * groups * tiles)
    splits = max(1, min(wanted, longest // KEYS))
    types = ", ".join(C_TYPES[dtype] for dtype in dtypes)
    kernel = Kernel(
        FILE,
        f"cached_attention<{types}, {vector}, {taken}, {inner}, {width}>",
        (splits, tiles, images * groups),
        (THREADS, 1, 1),
        (
            *integers(groups, sharing, rows, longest),
            *(np.int64(step) for item in steps for step in item),
            *integers(window),
            *floats(scale),
        ),
        code=COLUMNS,
    )
    if splits == 1:
        return Sums(kernel)
    blocks = tiles * images * groups
    return Sums(kernel, blocks * splits * taken * (width + 2), blocks)


def _steps(place: Placed) -> tuple[int, ...]:
    """Distances of images, heads and rows."""
    return tuple(place.strides[:3])
