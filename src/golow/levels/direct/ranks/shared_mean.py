"""The mean of arrays over the ranks of one host, in shared memory.

Every rank writes its arrays into its own slot, adds up one part of all slots in the order of the
ranks, and reads the whole result: the same bits on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from golow.levels.direct.ranks.meeting import Meeting
from golow.levels.direct.ranks.shared_memory import Barrier, shared_memory

SLOT_BYTES = 32 << 20
"""Memory of one rank. Larger arrays are averaged in parts."""


class Piece(NamedTuple):
    """Elements of an array that fit into a slot, and where they begin there. array: its number."""

    array: int
    first: int
    last: int
    start: int


class SharedMean:
    """Memory of all ranks. Its constructor and each call wait for all ranks, and raise `RankLost`
    if one does not arrive."""

    def __init__(self, meeting: Meeting, slot_bytes: int = SLOT_BYTES) -> None:
        self._meeting, self._slot_bytes = meeting, slot_bytes
        self._barrier = Barrier(meeting)
        memory = shared_memory(meeting, (meeting.ranks + 1) * slot_bytes)
        *self._slots, self._result = memory.reshape(meeting.ranks + 1, slot_bytes)

    def __call__(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Write the means of contiguous arrays of one type into these, which may be the same. Types
        of fewer than 32 bits are summed in float32."""
        given, made = ([item.reshape(-1) for item in items] for items in (arrays, results))
        for pieces in _parts(given, self._slot_bytes):
            self._average(given, made, pieces)

    def _average(
        self, given: Sequence[np.ndarray], made: Sequence[np.ndarray], pieces: Sequence[Piece]
    ) -> None:
        dtype = given[0].dtype
        count = pieces[-1].start + pieces[-1].last - pieces[-1].first
        own, result = (
            memory[: count * dtype.itemsize].view(dtype)
            for memory in (self._slots[self._meeting.rank], self._result)
        )
        for array, first, last, start in pieces:
            own[start : start + last - first] = given[array][first:last]
        self._barrier()
        share = -(-count // self._meeting.ranks)
        mine = slice(share * self._meeting.rank, share * (self._meeting.rank + 1))
        _mean([slot[: own.nbytes].view(dtype)[mine] for slot in self._slots], result[mine])
        self._barrier()
        for array, first, last, start in pieces:
            made[array][first:last] = result[start : start + last - first]


def alone(arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """The mean over one rank: for steps that are run to be timed, while other ranks do not."""
    for array, result in zip(arrays, results, strict=True):
        result[...] = array


def _parts(arrays: Sequence[np.ndarray], slot_bytes: int) -> Iterator[list[Piece]]:
    """Yield the arrays' elements in lists of pieces that fit into a slot together."""
    room = slot_bytes // arrays[0].itemsize
    pieces: list[Piece] = []
    start = 0
    for number, array in enumerate(arrays):
        first = 0
        while first < array.size:
            if start == room:
                yield pieces
                pieces, start = [], 0
            last = min(array.size, first + room - start)
            pieces.append(Piece(number, first, last, start))
            start += last - first
            first = last
    if pieces:
        yield pieces


def _mean(parts: Sequence[np.ndarray], result: np.ndarray) -> None:
    """Sum in the order of the ranks, then divide."""
    wide = result if result.itemsize >= 4 else np.empty(result.shape, np.float32)
    wide[...] = parts[0]
    for part in parts[1:]:
        np.add(wide, part, out=wide, dtype=wide.dtype)
    np.divide(wide, wide.dtype.type(len(parts)), out=wide)
    if wide is not result:
        result[...] = wide.astype(result.dtype)
