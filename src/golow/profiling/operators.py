"""Operators: their calls, and the time and memory that they took on the host and the device.

An operator may call others. What is its own is ``self``; with what it called it is ``total``. A
kernel belongs to the operator that launched it, whenever it ran.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from golow.profiling.trace import ON_DEVICE, OPERATOR, RUNTIME, Event, Trace, nested
from golow.record import Record


class OperatorTime(Record, frozen=True, kw_only=True):
    """One operator in a step, the mean of all steps: calls, seconds and bytes.

    shapes: of its inputs, if operators are told apart by them. Memory is what was allocated less
    what was freed.
    """

    name: str
    shapes: str = ""
    calls: float = 0.0
    self_host: float = 0.0
    total_host: float = 0.0
    self_device: float = 0.0
    total_device: float = 0.0
    self_host_memory: float = 0.0
    total_host_memory: float = 0.0
    self_device_memory: float = 0.0
    total_device_memory: float = 0.0


Key = tuple[str, str]


class _Sums:
    """What is added up for one operator; positions are those of `OperatorTime`'s fields."""

    def __init__(self) -> None:
        self.calls = 0
        self.figures: dict[str, float] = defaultdict(float)


def operator_times(trace: Trace, *, by_shape: bool = False) -> tuple[OperatorTime, ...]:
    """All operators of the steps, the one that took the longest itself first."""
    events = list(trace.in_steps(OPERATOR))
    around = nested(events)
    own = _own_figures(trace, events, around)
    sums: dict[Key, _Sums] = defaultdict(_Sums)
    for position, event in enumerate(events):
        found = sums[_key(event, by_shape)]
        found.calls += 1
        for name, value in own[position].items():
            found.figures[f"self_{name}"] += value
            for key in {_key(events[place], by_shape) for place in _chain(position, around)}:
                sums[key].figures[f"total_{name}"] += value
    steps = len(trace.steps)
    times = (
        OperatorTime(
            name=name,
            shapes=shapes,
            calls=found.calls / steps,
            **{field: value / steps for field, value in found.figures.items()},
        )
        for (name, shapes), found in sums.items()
    )
    return tuple(sorted(times, key=lambda time: (-time.self_host - time.self_device, time.name)))


def launchers(trace: Trace) -> dict[int, str]:
    """The operators that put something on the device, by the correlation of what they put there."""
    events = list(trace.in_steps(OPERATOR))
    finder = _Innermost(events, nested(events))
    found = {}
    for call in trace.in_steps(*RUNTIME):
        place = finder.at(call.lane, call.start)
        if place is not None and "correlation" in call.details:
            found[int(call.details["correlation"])] = events[place].name
    return found


def _own_figures(
    trace: Trace, events: Sequence[Event], around: Mapping[int, int]
) -> list[dict[str, float]]:
    """Of each event what is its own: seconds on the host and the device, bytes on both."""
    own: list[dict[str, float]] = [
        {"host": event.nanoseconds / 1e9, "device": 0.0, "host_memory": 0.0, "device_memory": 0.0}
        for event in events
    ]
    for position, outer in around.items():
        own[outer]["host"] -= events[position].nanoseconds / 1e9
    finder = _Innermost(events, around)
    for launch, nanoseconds in _launched(trace):
        if (place := finder.at(launch.lane, launch.start)) is not None:
            own[place]["device"] += nanoseconds / 1e9
    for allocation in trace.allocations:
        if (place := finder.at(allocation.lane, allocation.moment)) is not None:
            kind = "device_memory" if allocation.on_device else "host_memory"
            own[place][kind] += allocation.bytes
    return own


def _launched(trace: Trace) -> Iterator[tuple[Event, int]]:
    """The runtime's calls, with the nanoseconds of what each put on the device."""
    spent: dict[int, int] = defaultdict(int)
    for event in trace.events:
        if event.category in ON_DEVICE and "correlation" in event.details:
            spent[int(event.details["correlation"])] += event.nanoseconds
    for event in trace.in_steps(*RUNTIME):
        correlation = int(event.details.get("correlation", -1))
        if correlation in spent:
            yield event, spent[correlation]


class _Innermost:
    """Finds the innermost event around a moment."""

    def __init__(self, events: Sequence[Event], around: Mapping[int, int]) -> None:
        self._events, self._around = events, around
        self._on: dict[str, list[int]] = defaultdict(list)
        for position, event in enumerate(events):
            self._on[event.lane].append(position)

    def at(self, lane: str, moment: int) -> int | None:
        """Its position; None if there is none."""
        positions = self._on.get(lane, [])
        place = bisect_right(positions, moment, key=lambda p: self._events[p].start) - 1
        found = positions[place] if place >= 0 else None
        while found is not None and self._events[found].end <= moment:
            found = self._around.get(found)
        return found


def _chain(position: int, around: Mapping[int, int]) -> Iterator[int]:
    """The event and all around it."""
    place: int | None = position
    while place is not None:
        yield place
        place = around.get(place)


def _key(event: Event, by_shape: bool) -> Key:
    return event.name, str(event.details.get("Input Dims", "")) if by_shape else ""
