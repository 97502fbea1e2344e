"""Reads a trace: what ran when, on which thread or stream, in Chrome's trace event format.

The format is that of torch.profiler, and every worker that can be profiled writes it; Perfetto
opens it. https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from golow.records.errors import GolowError
from golow.storage.files import read_json
from golow.worker.protocol import MEMORY as KNOWN
from golow.worker.protocol import STEP, Snapshot

MOST_BYTES = 1 << 31  # of a trace: a step of a large network has tens of MiB
OPERATOR, ANNOTATION, MEMORY = "cpu_op", "user_annotation", "[memory]"
KERNEL, COPY, MEMSET = "kernel", "gpu_memcpy", "gpu_memset"
RUNTIME = ("cuda_runtime", "cuda_driver")
ON_DEVICE = (KERNEL, COPY, MEMSET)


class Event(NamedTuple):
    """Something that took a while: from start to end, in nanoseconds; lane: a thread or stream.

    details: what else the trace states, by torch.profiler's names: input shapes, a kernel's grid
    and block, a copy's bytes.
    """

    name: str
    category: str
    lane: str
    start: int
    end: int
    details: Mapping[str, Any]

    @property
    def nanoseconds(self) -> int:
        """How long it took."""
        return self.end - self.start


class Allocation(NamedTuple):
    """Bytes that an allocator gave out (positive) or took back, on the host or a device.

    allocated, reserved: what the allocator had given out then, and what it had taken itself; None
    if it does not report it. The host's allocator counts from the profiler's start.
    """

    moment: int
    lane: str
    bytes: int
    on_device: bool
    address: int | None = None
    allocated: int | None = None
    reserved: int | None = None


class Trace(NamedTuple):
    """The steps, in order, and what happened in and around them, in order of its start.

    device: the properties of the device, by torch.profiler's names; empty if they are not known.
    snapshots: of the memory after each iteration, if the program took them.
    """

    steps: tuple[Event, ...]
    events: tuple[Event, ...]
    allocations: tuple[Allocation, ...]
    device: Mapping[str, Any] = {}
    snapshots: tuple[Snapshot, ...] = ()

    def in_steps(self, *categories: str) -> Iterator[Event]:
        """The events of these categories that begin in a step."""
        wanted = [event for event in self.events if event.category in categories]
        for step in self.steps:
            yield from (event for event in wanted if step.start <= event.start < step.end)


class _File(msgspec.Struct):
    """Parsed events of the file."""

    events: list[dict[str, Any]] = msgspec.field(name="traceEvents")
    devices: list[dict[str, Any]] = msgspec.field(name="deviceProperties", default_factory=list)
    snapshots: list[Snapshot] = msgspec.field(name=KNOWN, default_factory=list)


def read_trace(file: Path) -> Trace:
    """The trace in that file; raises `GolowError` if it has no step, or is not a trace."""
    events: list[Event] = []
    allocations: list[Allocation] = []
    try:
        found = read_json(file, _File, MOST_BYTES)
        for item in found.events:
            if item.get("ph") == "X":
                events.append(_event(item))
            elif item.get("name") == MEMORY:
                allocations.append(_allocation(item))
    except (KeyError, TypeError, ValueError) as error:
        raise GolowError(f"{file} is not a trace: {error!r}") from error
    steps = [e for e in events if e.category == ANNOTATION and re.fullmatch(f"{STEP}\\d+", e.name)]
    if not steps:
        raise GolowError(f"{file} has no step of a profile")
    return Trace(
        tuple(sorted(steps, key=lambda event: event.start)),
        tuple(sorted(events, key=lambda event: (event.start, -event.end))),
        tuple(sorted(allocations, key=lambda allocation: allocation.moment)),
        found.devices[0] if found.devices else {},
        tuple(found.snapshots),
    )


def nested(events: Sequence[Event]) -> dict[int, int]:
    """For each event the position of the innermost one around it on its lane; none has none.

    events: in order of their start, the longer first.
    """
    around: dict[int, int] = {}
    open_on: dict[str, list[int]] = defaultdict(list)
    for position, event in enumerate(events):
        entered = open_on[event.lane]
        while entered and events[entered[-1]].end <= event.start:
            entered.pop()
        if entered:
            around[position] = entered[-1]
        entered.append(position)
    return around


def _event(item: Mapping[str, Any]) -> Event:
    start = round(float(item["ts"]) * 1000)
    return Event(
        name=str(item["name"]),
        category=str(item.get("cat", "")),
        lane=f"{item.get('pid')}/{item.get('tid')}",
        start=start,
        end=start + max(0, round(float(item.get("dur", 0)) * 1000)),
        details=item.get("args", {}),
    )


def _allocation(item: Mapping[str, Any]) -> Allocation:
    details = item["args"]
    return Allocation(
        moment=round(float(item["ts"]) * 1000),
        lane=f"{item.get('pid')}/{item.get('tid')}",
        bytes=int(details["Bytes"]),
        on_device=details.get("Device Type", 0) != 0,
        address=_optional(details.get("Addr")),
        allocated=_optional(details.get("Total Allocated")),
        reserved=_optional(details.get("Total Reserved")),
    )


def _optional(number: Any) -> int | None:
    return None if number is None else int(number)
