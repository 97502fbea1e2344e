"""One trace of all levels, for Perfetto: a process a level, its layers above its kernels, and its
memory as a counter.

Every level's first step begins at zero, so that the levels stand below one another. A layer's slice
lasts from its first to its last kernel in a row. The format is Chrome's.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

from golow.programs.profiling.places import Place, Places
from golow.programs.profiling.trace import ANNOTATION, ON_DEVICE, OPERATOR, RUNTIME, Event, Trace
from golow.worker.protocol import LAYER, PHASE

TIMELINE = "timeline.trace.json"
HOST, DEVICE, LAYERS = 0, 1000, 500
"""Where the lanes of a process begin, in Perfetto's order."""


def timeline(traces: Mapping[str, Trace]) -> list[dict[str, Any]]:
    """The events of all levels, by their names."""
    found: list[dict[str, Any]] = []
    for process, (level, trace) in enumerate(traces.items(), 1):
        found.append(_named("process_name", process, 0, level))
        found.append(
            {
                "ph": "M",
                "name": "process_sort_index",
                "pid": process,
                "args": {"sort_index": process},
            }
        )
        found += _level(trace, process)
    return found


def _level(trace: Trace, process: int) -> Iterator[dict[str, Any]]:
    start, end = trace.steps[0].start, trace.steps[-1].end
    inside = [event for event in trace.events if start <= event.start < end]
    device = [event for event in inside if event.category in ON_DEVICE]
    host = [e for e in inside if e.category in (ANNOTATION, OPERATOR, *RUNTIME)]
    yield from _lanes(host, HOST, "host", process, start)
    yield from _lanes(device, DEVICE, "device", process, start)
    if device:
        yield _named("thread_name", process, LAYERS, "layers on the device")
        for slice_ in _layer_slices(device, Places(trace)):
            yield _slice(slice_, process, LAYERS, start)
    yield from _counters(trace, process, start, end)


def _lanes(
    events: Sequence[Event], first: int, kind: str, process: int, start: int
) -> Iterator[dict[str, Any]]:
    lanes = list(dict.fromkeys(event.lane for event in events))
    for number in range(len(lanes)):
        name = kind if len(lanes) == 1 else f"{kind} {number + 1}"
        yield _named("thread_name", process, first + number, name)
    for event in events:
        yield _slice(event, process, first + lanes.index(event.lane), start)


def _layer_slices(device: Sequence[Event], places: Places) -> Iterator[Event]:
    """Kernels of one layer in a row, as one event."""
    groups = [(place, list(group)) for place, group in groupby(device, places.of)]
    following = [members[0].start for _, members in groups[1:]]
    for (place, members), next_start in zip_longest(groups, following):
        end = max(event.end for event in members)
        if next_start is not None:  # with several streams they overlap, and slices must not
            end = min(end, next_start)
        details = {"phase": place.phase, "kernels": len(members)}
        yield Event(_layer_name(place), "layer", "", members[0].start, end, details)


def _layer_name(place: Place) -> str:
    return place.layer or (f"({place.phase})" if place.phase else "(top)")


def _slice(event: Event, process: int, lane: int, start: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": event.name.removeprefix(LAYER).removeprefix(PHASE) or "(top)",
        "cat": event.category,
        "pid": process,
        "tid": lane,
        "ts": (event.start - start) / 1000,
        "dur": event.nanoseconds / 1000,
        "args": dict(event.details),
    }


def _counters(trace: Trace, process: int, start: int, end: int) -> Iterator[dict[str, Any]]:
    """Bytes that were allocated since the first step began, on the host and the device."""
    for on_device in (False, True):
        held, name = 0, f"allocated on the {'device' if on_device else 'host'} (bytes)"
        for item in trace.allocations:
            if item.on_device == on_device and start <= item.moment < end:
                held += item.bytes
                yield {
                    "ph": "C",
                    "name": name,
                    "pid": process,
                    "ts": (item.moment - start) / 1000,
                    "args": {"bytes": held},
                }


def _named(what: str, process: int, lane: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": lane, "args": {"name": name}}
