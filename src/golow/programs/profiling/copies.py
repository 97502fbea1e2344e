"""Copies on and to a device in a step, by their kind."""

from __future__ import annotations

from collections import defaultdict

from golow.programs.profiling.trace import COPY, Event, Trace
from golow.records.record import Record


class CopyTime(Record, frozen=True, kw_only=True):
    """The copies of one kind in a step, the mean of all steps: their number, seconds and bytes.

    name: as CUPTI has it, such as ``Memcpy HtoD (Pageable -> Device)``. bytes: 0 if the trace does
    not report.
    """

    name: str
    calls: float
    seconds: float
    bytes: float = 0.0


def copy_times(trace: Trace) -> tuple[CopyTime, ...]:
    """The copies of the steps, the kind that took the longest first."""
    kinds: dict[str, list[Event]] = defaultdict(list)
    for event in trace.in_steps(COPY):
        kinds[event.name].append(event)
    steps = len(trace.steps)
    found = (
        CopyTime(
            name=name,
            calls=len(events) / steps,
            seconds=sum(event.nanoseconds for event in events) / 1e9 / steps,
            bytes=sum(float(event.details.get("bytes", 0)) for event in events) / steps,
        )
        for name, events in kinds.items()
    )
    return tuple(sorted(found, key=lambda copy: (-copy.seconds, copy.name)))
