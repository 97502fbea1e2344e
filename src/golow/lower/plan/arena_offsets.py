"""Arena allocation: offsets of buffers: buffers that are never alive at the same time share
bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

CACHE_LINE = 64  # bytes; also the widest vector register of a CPU


class Lifetime(NamedTuple):
    """A buffer's size in bytes, the first step that writes it and the last one that reads it."""

    bytes: int
    first: int
    last: int


class Layout(NamedTuple):
    """Offsets in bytes, in the order of the buffers, and the size of the arena."""

    offsets: tuple[int, ...]
    bytes: int


def assign_offsets(buffers: Sequence[Lifetime], alignment: int = CACHE_LINE) -> Layout:
    """Give each buffer an offset so that no two that are alive at the same time overlap.

    Greedy by size: the largest first, each into the lowest gap that holds it. Pisarchyk and Lee
    found this strategy the best among simple ones ("Efficient Memory Management for Deep Neural Net
    Inference", 2020). Empty buffers are at 0; offsets are multiples of the alignment.
    """
    count = len(buffers)
    sizes = np.array([_aligned(buffer.bytes, alignment) for buffer in buffers], dtype=np.int64)
    first = np.array([buffer.first for buffer in buffers], dtype=np.int64)
    last = np.array([buffer.last for buffer in buffers], dtype=np.int64)
    offsets = np.zeros(count, dtype=np.int64)
    placed = np.zeros(count, dtype=bool)
    for index in sorted(range(count), key=lambda i: (-sizes[i], first[i])):
        if sizes[index] == 0:
            continue
        beside = placed & (first <= last[index]) & (last >= first[index])
        offsets[index] = _lowest_gap(offsets[beside], sizes[beside], int(sizes[index]))
        placed[index] = True
    total = int((offsets + sizes).max()) if count else 0
    return Layout(tuple(int(offset) for offset in offsets), total)


def _lowest_gap(offsets: np.ndarray, sizes: np.ndarray, wanted: int) -> int:
    """The lowest offset at which ``wanted`` bytes are free between the taken ranges."""
    order = np.argsort(offsets, kind="stable")
    starts, ends = offsets[order], np.maximum.accumulate((offsets + sizes)[order])
    if not len(starts) or starts[0] >= wanted:
        return 0
    gaps = np.flatnonzero(starts[1:] - ends[:-1] >= wanted)
    return int(ends[gaps[0]] if len(gaps) else ends[-1])


def _aligned(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
