"""The mean of arrays over the ranks of one host, in memory that they share.

Every rank writes its arrays into a slot of its own, adds up one part of all slots in the order of
the ranks, and reads the whole result: the same bits on every rank. The memory has no name in the
file system, so that nothing is left of it however the processes end.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.ranks.meeting import LOOK, Meeting

SLOT_BYTES = 32 << 20
"""Of one rank. Larger arrays are averaged in parts."""
LINE = 64  # bytes; each rank's counter is in a cache line of its own
SPINS = 2000  # looks at a counter before a rank begins to sleep in between
PAUSE = 50e-6  # seconds


class Piece(NamedTuple):
    """Elements of an array that fit into a slot, and where they begin there. array: its number."""

    array: int
    first: int
    last: int
    start: int


class SharedMean:
    """Memory of all ranks. Making it and each call of it wait for all of them, and raise `RankLost`
    if one does not come."""

    def __init__(self, meeting: Meeting, slot_bytes: int = SLOT_BYTES) -> None:
        self._meeting, self._slot_bytes = meeting, slot_bytes
        header = -(-LINE * meeting.ranks // mmap.PAGESIZE) * mmap.PAGESIZE
        self._map = _shared(meeting, header + (meeting.ranks + 1) * slot_bytes)
        memory = np.frombuffer(self._map, np.uint8)
        self._arrived: Any = memory[:header].view(np.int64)[:: LINE // 8]
        slots = memory[header:].reshape(meeting.ranks + 1, slot_bytes)
        self._slots, self._result = slots[:-1], slots[-1]
        self._turn = 0

    def __call__(self, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
        """Write the means of contiguous arrays of one type into these, which may be the same. Types
        of fewer than 32 bits are added up in float32."""
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
        self._meet()
        share = -(-count // self._meeting.ranks)
        mine = slice(share * self._meeting.rank, share * (self._meeting.rank + 1))
        _mean([slot[: own.nbytes].view(dtype)[mine] for slot in self._slots], result[mine])
        self._meet()
        for array, first, last, start in pieces:
            made[array][first:last] = result[start : start + last - first]

    def _meet(self) -> None:
        """Wait until all ranks are here. What each wrote before is there: x86-64 keeps the order of
        its stores."""
        self._turn += 1
        self._arrived[self._meeting.rank] = self._turn
        for rank in range(self._meeting.ranks):
            self._wait_for(rank)

    def _wait_for(self, rank: int) -> None:
        for _ in range(SPINS):
            if self._arrived[rank] >= self._turn:
                return
            os.sched_yield()
        begun = looked = time.monotonic()
        while self._arrived[rank] < self._turn:
            time.sleep(PAUSE)
            now = time.monotonic()
            if now - looked < LOOK:
                continue
            looked = now
            late = now - begun > self._meeting.patience
            if (late or self._meeting.is_gone(rank)) and self._arrived[rank] < self._turn:
                raise self._meeting.lost(rank, "its gradients")


def alone(arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    """The mean over one rank: for steps that are run to be timed, while other ranks do not."""
    for array, result in zip(arrays, results, strict=True):
        result[...] = array


def _shared(meeting: Meeting, size: int) -> mmap.mmap:
    """Return memory of rank 0 that all ranks have. They open it by its descriptor in rank 0's
    process, which keeps it until all have."""
    name = meeting.numbered("memory")
    made = os.memfd_create("golow-ranks") if meeting.rank == 0 else -1
    try:
        if made >= 0:
            os.ftruncate(made, size)
        place = meeting.from_first(name, lambda: f"/proc/{os.getpid()}/fd/{made}".encode())
        taken = os.dup(made) if made >= 0 else os.open(place.decode(), os.O_RDWR)
        try:
            memory = mmap.mmap(taken, size)
        finally:
            os.close(taken)
        meeting.everyone(f"{name}-taken", b"")
        return memory
    finally:
        if made >= 0:
            os.close(made)


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
    """Add up in the order of the ranks, then divide."""
    wide = result if result.itemsize >= 4 else np.empty(result.shape, np.float32)
    wide[...] = parts[0]
    for part in parts[1:]:
        np.add(wide, part, out=wide, dtype=wide.dtype)
    np.divide(wide, wide.dtype.type(len(parts)), out=wide)
    if wide is not result:
        result[...] = wide.astype(result.dtype)
