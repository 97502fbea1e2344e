"""Values written into the batches of a challenged block: every marked element of every iteration
has its own value, unknown before the block, and with a chain before the iteration.

The values are windows of one long row of random numbers, so that an iteration copies a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from golow.records.errors import GolowError
from golow.worker.hashing import BITS, hashed, hashed_range
from golow.worker.protocol import Marks

WINDOWS = 1 << 16
"""Places in the row at which an iteration's values may begin."""


def values_of(marks: Marks, rows: int) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
    """The row from which the iterations take their values; rows: samples of a batch."""
    random = hashed_range(marks.seed, rows * marks.length + WINDOWS)
    if marks.whole:
        count = int(marks.high) - int(marks.low) + 1
        return (random.astype(np.uint64) * np.uint64(count) >> np.uint64(32)).astype(
            np.int64
        ) + int(marks.low)
    return marks.low + (marks.high - marks.low) * (random / 2.0**32)


def window(marks: Marks, iteration: int, result: float | None) -> int:
    """Where the values of an iteration begin. result: of the iteration before, if there is one."""
    return hashed(hashed(marks.seed + iteration) + cell(marks.chain, result)) % WINDOWS


def cell(width: float | None, result: float | None) -> int:
    """The number of the cell of this width that contains a result; 0 without a chain."""
    if width is None or result is None or not math.isfinite(result / width):
        return 0
    return math.floor(result / width) & BITS


@contextmanager
def marked_arrays(
    batches: Sequence[Sequence[npt.NDArray[Any]]], marks: Marks, next_iteration: Callable[[], int]
) -> Iterator[Callable[[int], None]]:
    """A function that writes a window into the marked part of the next iteration's batch.

    batches: of every batch the inputs, contiguous. The original values are back on leaving.
    """
    parts = [marked_part(batch[marks.input], marks) for batch in batches]
    saved = [part.copy() for part in parts]
    shape, size = parts[0].shape, parts[0].size
    row = values_of(marks, shape[0]).astype(parts[0].dtype)

    def write(start: int) -> None:
        parts[next_iteration() % len(parts)][...] = row[start : start + size].reshape(shape)

    try:
        yield write
    finally:
        for part, values in zip(parts, saved, strict=True):
            part[...] = values


def marked_part(array: npt.NDArray[Any], marks: Marks) -> npt.NDArray[Any]:
    """A view of the marked elements, [samples, length]. Raises ValueError for an array that is not
    contiguous, of which there is no such view, and `GolowError` for marks outside of a sample."""
    flat = array.view()
    flat.shape = (len(array), -1)  # unlike reshape, this never copies
    return flat[:, marked_span(marks, flat.shape[1])]


def marked_span(marks: Marks, size: int) -> slice:
    """The marked elements of a sample with this many; raises `GolowError` if some are outside."""
    end = marks.start + marks.length
    if not 0 <= marks.start <= end <= size:
        raise GolowError(f"a sample of {size} elements has no elements {marks.start} to {end}")
    return slice(marks.start, end)
