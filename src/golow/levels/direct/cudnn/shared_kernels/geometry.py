"""How work is distributed over threads: vectors of 16 bytes, blocks for every multiprocessor."""

from __future__ import annotations

import math
import re

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import FOLDER

VECTOR = (FOLDER / "vectors.cuh").read_text()  # included before kernels that load vectors
FLOATING = ("float32", "bfloat16", "float16")
THREADS = 256
# Four times as many such blocks as 132 multiprocessors hold; blocks loop over longer tensors.
MOST_BLOCKS = 4224
MOST_PARTS = 65535  # blocks along the second axis of a grid
LARGEST_INT = 2**31 - 1

Grid = tuple[int, int, int]


def vector(*dtypes: str) -> int:
    """Elements that a thread takes at once: 16 bytes of the narrowest type, at most 8."""
    return min(8, 16 // min(ITEM_BYTES[dtype] for dtype in dtypes))


def approximate(code: str, *dtypes: str) -> str:
    """C with formulas whose results have these types. Where all are stored in 16 bits, exponentials
    and reciprocals may be off by some roundings of float32, which saves most of their instructions:
    in a SiLU's gradient they take longer than memory does."""
    if not {"bfloat16", "float16"}.issuperset(dtypes):
        return code
    return re.sub(r"\bexpf\(", "__expf(", code).replace("1.0f / (", "__fdividef(1.0f, ")


def channel_vector(dtype: str, channels: int) -> int:
    """The longest vector up to 16 bytes that divides the channels."""
    return math.gcd(channels, 16 // ITEM_BYTES[dtype])


def flat(count: int, each: int) -> tuple[Grid, Grid]:
    """Grid and block for ``count`` elements, of which a thread takes ``each`` at once."""
    blocks = -(-count // (THREADS * each))
    return (min(blocks, MOST_BLOCKS), 1, 1), (THREADS, 1, 1)


def rows_of(rows: int, length: int) -> tuple[Grid, Grid]:
    """Grid (rows, parts of a row) and block: one thread for each element of a row, in parts of
    equal size. With this grid the kernels need only one division. Raises ValueError if the row is
    too long.
    """
    parts = -(-length // THREADS)
    if parts > MOST_PARTS:
        raise ValueError(f"{length} threads in a row; one launch takes {MOST_PARTS * THREADS}")
    threads = -(-length // parts)
    return (rows, parts, 1), (32 * -(-threads // 32), 1, 1)


def require_floating(**dtypes: str) -> None:
    """Raises ValueError for a type that is not floating point."""
    for name, dtype in dtypes.items():
        if dtype not in FLOATING:
            raise ValueError(f"{name} is {dtype}; it must be one of {', '.join(FLOATING)}")


def require_count(count: int) -> None:
    """Raises ValueError for a tensor without elements."""
    if count < 1:
        raise ValueError(f"count is {count}; it must be at least 1")


def require_positive(**sizes: int) -> None:
    """Raises ValueError for a size below 1 or above 2^31 - 1."""
    for name, size in sizes.items():
        if not 1 <= size <= LARGEST_INT:
            raise ValueError(f"{name} is {size}; it must be from 1 to {LARGEST_INT}")
