"""Memory that a worker holds on the host and the GPU, seen from outside."""

from __future__ import annotations

from collections.abc import Iterator

from golow.measure.gpu.nvml import Card
from golow.records.comparison import Quantity
from golow.worker.client import Worker


class HeldMemory:
    """The memory of one worker. card: the GPU that it runs on, None on a CPU.

    Some drivers do not tell which process holds what. For those the GPU's used bytes are read
    before the worker starts and once it is ready, while no other worker starts.
    """

    def __init__(self, card: Card | None) -> None:
        self._card = card
        self._before: int | None = None
        self._added = 0

    @property
    def has_before(self) -> bool:
        """True if the GPU was read before the worker."""
        return self._before is not None

    def read_before(self) -> None:
        """Read how full the GPU is; to be called before the worker starts."""
        self._before = self._card.used_bytes() if self._card else None

    def read_ready(self, worker: Worker) -> None:
        """Read by how much the GPU is fuller than before the worker started."""
        if self._card is None:
            return
        worker.time(1, 0)  # what it gave back after the check, an iteration takes again
        used = self._card.used_bytes()
        if used is not None and self._before is not None:
            self._added = max(0, used - self._before)

    def forget(self) -> None:
        """The worker has ended; the next one is measured anew."""
        self._before = None

    def on_device(self, worker: Worker) -> tuple[str, int]:
        """Bytes on the GPU now, and the name that states how they were measured: ``device_used`` by
        process, or ``device_added``. 0 bytes without a GPU, or where the driver tells nothing."""
        if self._card is None:
            return "", 0
        listed = self._card.process_bytes(worker.pid)
        return ("device_used", listed) if listed else ("device_added", self._added)

    def quantities(self, worker: Worker) -> Iterator[Quantity]:
        """``resident`` and ``resident_peak`` bytes of the host; on a GPU ``device_used`` or
        ``device_added``."""
        for name, size in worker.resident_bytes().items():
            yield Quantity(name=name, unit="B", value=size)
        name, size = self.on_device(worker)
        if size:
            yield Quantity(name=name, unit="B", value=size)
