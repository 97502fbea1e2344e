"""NCCL without a GPU: what the ranks of a host exchange, over memory that they share, on the device
of `gpu_on_host.py`.

A GPU's streams run beside one another. Here a mean on the ranks' own stream is computed as late as
their events allow: when another stream waits for it. A step that reads a mean without waiting for
it, or overwrites a gradient before it, gives a wrong result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES
from golow.levels.direct.ranks.meeting import Meeting
from golow.levels.direct.ranks.shared_mean import SharedMean
from support.direct.gpu_on_host import Call, HostGpu


class Event(NamedTuple):
    """What a stream had to do when it was recorded: so many means."""

    stream: int
    means: int


class RanksGpu(HostGpu):
    """A device whose work on the stream of the ranks is late. waits: of which streams for which
    events, in order. graphs: that were captured and not destroyed."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[Call] = []
        self.asked = 0  # means on the ranks' stream so far
        self.waits: list[tuple[int, Event]] = []
        self.graphs: list[list[Call]] = []

    def synchronize(self) -> None:
        """There is nothing to wait for. On a GPU the host would wait here for other ranks, which
        may wait for what it has not enqueued yet; within a capture CUDA refuses it."""
        assert self.recording is None, "the host waits within a capture"
        assert not self.late, "the host waits while means are under way"

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> np.ndarray:
        self.synchronize()
        return super().download(address, shape, dtype)

    def fork(self, stream: int | None = None) -> None:
        """What is on the main stream has been done."""

    def beside(self, stream: int | None = None) -> Event:
        return Event(stream or 0, self.asked)

    def join(self, event: Event, stream: int | None = None) -> None:
        self.waits.append((stream or self.stream, event))
        while event.stream and self.asked - len(self.late) < event.means:
            do, addresses = self.late.pop(0)
            self.enqueue(do, *addresses)

    def capture(self, enqueue: Any) -> list[Call]:
        assert not self.late, "a capture begins while means are under way"
        self.recording = []
        enqueue()
        found, self.recording = self.recording, None
        assert not self.late, "a capture ends while means are under way"
        self.graphs.append(found)
        return found

    def replay(self, graph: list[Call]) -> None:
        for do, addresses in graph:
            do(addresses)

    def destroy(self, graph: list[Call]) -> None:
        self.graphs = [other for other in self.graphs if other is not graph]
        graph.clear()


class Exchange(NamedTuple):
    """Work that waits for the other ranks. forms: of each array, elements and type."""

    ranks: HostRanks
    forms: tuple[tuple[int, str], ...]

    def __call__(self, addresses: Sequence[int]) -> None:
        assert not self.ranks.closed, "a graph uses an exchange that was destroyed"
        for address, (elements, dtype) in zip(addresses, self.forms, strict=True):
            raw = (ctypes.c_uint8 * (elements * ITEM_BYTES[dtype])).from_address(address)
            array = np.frombuffer(raw, np.uint8).view(NUMPY_TYPES[dtype])
            self.ranks.average(array)


class HostRanks:
    """A rank's end of the exchange. exchanged: the bytes of each mean that was enqueued, in order.
    closed: whether it was destroyed."""

    stream = 9

    def __init__(self, meeting: Meeting, gpu: RanksGpu) -> None:
        self.meeting, self._shared, self._gpu = meeting, SharedMean(meeting, 1 << 16), gpu
        self.exchanged: list[int] = []
        self.closed = False

    def mean(self, pieces: Sequence[tuple[int, int, str]], stream: int) -> None:
        self.exchanged.append(sum(n * ITEM_BYTES[dtype] for _, n, dtype in pieces))
        do = Exchange(self, tuple((elements, dtype) for _, elements, dtype in pieces))
        addresses = tuple(address for address, _, _ in pieces)
        if stream == self.stream:
            self._gpu.asked += 1
            self._gpu.late.append((do, addresses))
        else:
            self._gpu.enqueue(do, *addresses)

    def average(self, array: np.ndarray) -> None:
        """Replace it by its mean over the ranks."""
        self._shared([array], [array])

    def wait(self, gpu: HostGpu) -> None:
        """All has been done."""

    def close(self) -> None:
        assert not self._gpu.graphs, "NCCL waits forever for graphs that have its operations"
        self.closed = True
