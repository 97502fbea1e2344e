"""Records what the GPU does, and the host's calls of the driver, by CUPTI: NVIDIA's interface for
profilers, on which torch.profiler stands, too.
https://docs.nvidia.com/cupti/main/main.html#cupti-activity-api
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cupti import cupti

from golow.levels.direct.cudnn.run.activities import Activity

BUFFER_BYTES = 8 << 20
OWN = cupti.ExternalCorrelationKind.CUSTOM0
KINDS = cupti.ActivityKind
RECORDED = (
    KINDS.CONCURRENT_KERNEL,
    KINDS.MEMCPY,
    KINDS.MEMSET,
    KINDS.DRIVER,
    KINDS.RUNTIME,
    KINDS.EXTERNAL_CORRELATION,
)
COPIES = {"HTOD": "HtoD", "DTOH": "DtoH", "DTOD": "DtoD"}


class Recorder:
    """Collects activities while `recording`, and which of them belong to which mark."""

    def __init__(self) -> None:
        self.activities: list[Activity] = []
        self._marks: dict[int, int] = {}  # by correlation
        cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self._take)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what happens within; all of it must have ended before."""
        for kind in RECORDED:
            cupti.activity_enable(kind)
        try:
            yield
        finally:
            cupti.activity_flush_all(1)
            for kind in RECORDED:
                cupti.activity_disable(kind)

    @contextmanager
    def marked(self, mark: int) -> Iterator[None]:
        """Mark what this thread enqueues within."""
        cupti.activity_push_external_correlation_id(OWN, mark)
        try:
            yield
        finally:
            cupti.activity_pop_external_correlation_id(OWN)

    def mark_of(self, activity: Activity) -> int | None:
        """The mark under which it was enqueued."""
        return self._marks.get(activity.correlation)

    def _take(self, records: list[Any]) -> None:
        """CUPTI's callback with a full buffer, whose records are only there until it returns."""
        for record in records:
            kind = KINDS(record.kind)
            if kind == KINDS.EXTERNAL_CORRELATION:
                self._marks[record.correlation_id] = record.external_id
            elif (read := READERS.get(kind)) is not None:
                self.activities.append(read(record))


def now() -> int:
    """Nanoseconds of the clock of activities."""
    return int(cupti.get_timestamp())


# ---------------------------------------------------------------- reading records


def _kernel(record: Any) -> Activity:
    return Activity(
        kind="kernel",
        name=demangled(record.name),
        lane=record.stream_id,
        start=record.start,
        end=record.end,
        correlation=record.correlation_id,
        sizes=(
            *(record.grid_x, record.grid_y, record.grid_z),
            *(record.block_x, record.block_y, record.block_z),
        ),
        registers=record.registers_per_thread,
        bytes=record.static_shared_memory + record.dynamic_shared_memory,
        graph=bool(record.graph_id),
    )


def _copy(record: Any) -> Activity:
    direction = COPIES.get(cupti.ActivityMemcpyKind(record.copy_kind).name, "other")
    memory = cupti.ActivityMemoryKind
    source, target = (memory(k).name.capitalize() for k in (record.src_kind, record.dst_kind))
    name = f"Memcpy {direction} ({source} -> {target})"
    return _moved("copy", name, record)


def _memset(record: Any) -> Activity:
    return _moved("memset", "Memset", record)


def _moved(kind: str, name: str, record: Any) -> Activity:
    return Activity(
        kind=kind,
        name=name,
        lane=record.stream_id,
        start=record.start,
        end=record.end,
        correlation=record.correlation_id,
        bytes=record.bytes,
        graph=bool(record.graph_id),
    )


def _call(kind: str, domain: Any) -> Callable[[Any], Activity]:
    return lambda record: Activity(
        kind=kind,
        name=cupti.get_callback_name(domain, record.cbid),
        lane=record.thread_id,
        start=record.start,
        end=record.end,
        correlation=record.correlation_id,
    )


READERS: dict[Any, Callable[[Any], Activity]] = {
    KINDS.CONCURRENT_KERNEL: _kernel,
    KINDS.MEMCPY: _copy,
    KINDS.MEMSET: _memset,
    KINDS.DRIVER: _call("driver", cupti.CallbackDomain.DRIVER_API),
    KINDS.RUNTIME: _call("runtime", cupti.CallbackDomain.RUNTIME_API),
}


def demangled(name: str) -> str:
    """A C++ name as in the source; other names stay as they are."""
    library = ctypes.CDLL("libstdc++.so.6")
    library.__cxa_demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    found = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not found:
        return name
    try:
        return ctypes.string_at(found).decode()
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(found))
