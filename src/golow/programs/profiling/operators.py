"""Operators: their calls, and the time and memory that they took on the host and the device.

An operator may call others. What is its own is ``self``; with what it called it is ``total``. A
kernel belongs to the operator that launched it, whenever it ran.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from golow.programs.profiling.places import Innermost, Places
from golow.programs.profiling.trace import ON_DEVICE, OPERATOR, RUNTIME, Event, Trace
from golow.records.record import Record


class OperatorTime(Record, frozen=True, kw_only=True):
    """One operator in a step, the mean of all steps: calls, seconds and bytes.

    shapes: of its inputs, if operators are told apart by them. sites: the lines of the user's code
    that call it, or of whose gradients it is part, the most frequent first; empty if they are not
    known. Memory is what was allocated less what was freed.
    """

    name: str
    shapes: str = ""
    sites: tuple[str, ...] = ()
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
    """Sums for one operator; positions are those of `OperatorTime`'s fields."""

    def __init__(self) -> None:
        self.calls = 0
        self.figures: dict[str, float] = defaultdict(float)


def operator_times(trace: Trace, *, by_shape: bool = False) -> tuple[OperatorTime, ...]:
    """All operators of the steps, the one that took the longest itself first."""
    finder = Innermost(list(trace.in_steps(OPERATOR)))
    events = finder.events
    own = _own_figures(trace, finder)
    sums: dict[Key, _Sums] = defaultdict(_Sums)
    for position, event in enumerate(events):
        found = sums[_key(event, by_shape)]
        found.calls += 1
        for name, value in own[position].items():
            found.figures[f"self_{name}"] += value
            for key in {_key(events[place], by_shape) for place in finder.chain(position)}:
                sums[key].figures[f"total_{name}"] += value
    steps, sites = len(trace.steps), _sites(trace, by_shape)
    times = (
        OperatorTime(
            name=name,
            shapes=shapes,
            sites=tuple(site for site, _ in sites[name, shapes].most_common()),
            calls=found.calls / steps,
            **{field: value / steps for field, value in found.figures.items()},
        )
        for (name, shapes), found in sums.items()
    )
    return tuple(sorted(times, key=lambda time: (-time.self_host - time.self_device, time.name)))


def launchers(trace: Trace) -> dict[int, str]:
    """The operators that put something on the device, by the correlation of what they put there."""
    finder = Innermost(list(trace.in_steps(OPERATOR)))
    found = {}
    for call in trace.in_steps(*RUNTIME):
        operator = finder.at(call.lane, call.start)
        if operator is not None and "correlation" in call.details:
            found[int(call.details["correlation"])] = operator.name
    return found


def _sites(trace: Trace, by_shape: bool) -> dict[Key, Counter[str]]:
    """How often each line of the user's code calls an operator, where lines are marked."""
    places, found = Places(trace), defaultdict[Key, Counter[str]](Counter)
    for event in trace.events:
        if event.category == OPERATOR and (site := places.site(event)):
            found[_key(event, by_shape)][site] += 1
    return found


def _own_figures(trace: Trace, finder: Innermost) -> list[dict[str, float]]:
    """Self figures of each event: seconds on the host and the device, bytes on both."""
    own: list[dict[str, float]] = [
        {"host": event.nanoseconds / 1e9, "device": 0.0, "host_memory": 0.0, "device_memory": 0.0}
        for event in finder.events
    ]
    for position, event in enumerate(finder.events):
        if (outer := finder.outside(position)) is not None:
            own[outer]["host"] -= event.nanoseconds / 1e9
    for launch, nanoseconds in _launched(trace):
        if (place := finder.position(launch.lane, launch.start)) is not None:
            own[place]["device"] += nanoseconds / 1e9
    for allocation in trace.allocations:
        if (place := finder.position(allocation.lane, allocation.moment)) is not None:
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


def _key(event: Event, by_shape: bool) -> Key:
    return event.name, str(event.details.get("Input Dims", "")) if by_shape else ""
