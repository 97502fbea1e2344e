"""Why a GPU was idle, as Meta's HolisticTraceAnalysis divides it.

An idle stretch ends when the next kernel, copy or memset begins. If the host launched that only
after the stretch had begun, the GPU waited for the host. If it had been launched before and the
stretch is short, it is the gap that is between any two kernels. Anything else is ``other``, such
as waiting for an event. All streams count as one GPU here, and gaps of up to 5 us as short; HTA has
one figure a stream, and 30 ns, less than the gap between two kernels of one stream on an H200.
https://hta.readthedocs.io/en/latest/source/features/idle_time_breakdown.html
"""

from __future__ import annotations

from collections.abc import Iterator

from golow.programs.profiling.summary import Interval, Part
from golow.programs.profiling.trace import ON_DEVICE, RUNTIME, Event, Trace

CAUSES = ("waiting for the host", "between kernels", "other")
SHORT = 5_000  # nanoseconds


def idle_times(trace: Trace) -> tuple[Part, ...]:
    """Seconds of a step for each cause, and their share of the step; empty if nothing ran on a
    device."""
    device = sorted((e for e in trace.events if e.category in ON_DEVICE), key=lambda e: e.start)
    if not device:
        return ()
    launches = {
        int(event.details["correlation"]): event.start
        for event in trace.events
        if event.category in RUNTIME and "correlation" in event.details
    }
    found, total = dict.fromkeys(CAUSES, 0), 0
    for step in trace.steps:
        total += step.nanoseconds
        for (start, end), following in _idle(device, step):
            found[_cause(start, end, following, launches)] += end - start
    steps = len(trace.steps)
    return tuple(
        Part(role=cause, seconds=ns / 1e9 / steps, share=ns / total) for cause, ns in found.items()
    )


def _idle(device: list[Event], step: Event) -> Iterator[tuple[Interval, Event | None]]:
    """The idle stretches of a step, each with what follows on the device in the step."""
    reached = step.start
    for event in device:
        if event.end <= step.start or event.start >= step.end:
            continue
        if event.start > reached:
            yield (reached, event.start), event
        reached = max(reached, event.end)
    if reached < step.end:
        yield (reached, step.end), None


def _cause(start: int, end: int, following: Event | None, launches: dict[int, int]) -> str:
    if following is None:
        return "waiting for the host"
    launched = launches.get(int(following.details.get("correlation", -1)))
    if launched is not None and launched > start:
        return "waiting for the host"
    return "between kernels" if end - start <= SHORT else "other"
