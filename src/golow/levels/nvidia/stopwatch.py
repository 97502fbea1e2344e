"""Times iterations on a GPU by its own clock."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import Any

from golow.levels.nvidia.memory import GpuError, Region
from golow.levels.nvidia.stream import Stream


class Stopwatch:
    """Times iterations with pairs of events."""

    def __init__(self, stream: Stream, iterations: int) -> None:
        self._stream = stream
        self._pairs: list[tuple[Any, Any]] = []
        # Created one by one, so that on failure the existing ones are freed.
        self._pairs += ((stream.event(), stream.event()) for _ in range(iterations))
        self._flushed: Region | None = None

    def flush(self) -> None:
        """Enqueue clearing the L2 cache."""
        size = 2 * self._stream.cache_bytes
        self._flushed = self._flushed or Region(size)
        self._stream.fill(self._flushed.address, size)

    def start(self, index: int) -> None:
        """Enqueue the start event of an iteration."""
        self._stream.record(self._pairs[index][0])

    def stop(self, index: int) -> None:
        """Enqueue its end event."""
        self._stream.record(self._pairs[index][1])

    def nanoseconds(self) -> tuple[int, ...]:
        """Return the time of each iteration, after all events have occurred."""
        self._stream.synchronize()
        return tuple(self._stream.elapsed_ns(*pair) for pair in self._pairs)

    def __del__(self) -> None:
        for event in chain(*self._pairs):
            with suppress(GpuError):  # at exit, the driver may already be gone
                self._stream.forget(event)
