"""Memory shared by all ranks of one host, with a barrier. It has no name in the file system, so
nothing remains however the processes end."""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

import numpy as np

from golow.levels.direct.ranks.meeting import LOOK, Meeting

LINE = 64  # bytes; each rank's counter is in a cache line of its own
SPINS = 2000  # looks at a counter before a rank begins to sleep in between
PAUSE = 50e-6  # seconds


def shared_memory(meeting: Meeting, size: int) -> np.ndarray:
    """Return that many bytes, initially zero, shared by all ranks. They open rank 0's memory by its
    descriptor, which rank 0 keeps until all have opened it. Raises `RankLost`."""
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
        return np.frombuffer(memory, np.uint8)
    finally:
        if made >= 0:
            os.close(made)


class Barrier:
    """Barrier at which all ranks wait for one another."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting, self._turn = meeting, 0
        memory = shared_memory(meeting, LINE * meeting.ranks)
        self._arrived: Any = memory.view(np.int64)[:: LINE // 8]

    def __call__(self) -> None:
        """Wait for all ranks. Earlier writes of each are then visible, because x86-64 keeps the
        order of stores. Raises `RankLost` if one does not arrive."""
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
                raise self._meeting.lost(rank)
