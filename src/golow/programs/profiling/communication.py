"""Communication between the ranks of a training step, from the trace of each.

A collective operation ends on all ranks at about the same time, but begins on each rank when that
rank reaches it. The rank on which it is shortest arrived last and did not wait; on every other rank
the additional time is waiting. The clocks of the ranks therefore need not agree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from golow.programs.profiling.summary import Interval, clipped, union
from golow.programs.profiling.trace import KERNEL, ON_DEVICE, OPERATOR, Event, Trace
from golow.records.record import Record

GLOO, CALL = "gloo:", "c10d::"
NCCL = "nccl"
DIRECT = "all_reduce"  # the step of a direct level without its own profiler
AVERAGED = "golow averaged"  # in its details: the layers


class RankTime(Record, frozen=True, kw_only=True):
    """Seconds per step of one rank, the mean of all steps. communication: while a collective
    operation ran. exposed: the part of these in which nothing else was computed. waited: for ranks
    that arrived later, summed over the operations."""

    communication: float
    exposed: float
    waited: float


class Collective(Record, frozen=True, kw_only=True):
    """A collective operation of a step. seconds: from the arrival of the last rank to the end, the
    mean of all steps. waits: by rank, seconds of waiting for the last one. last: by rank, the share
    of the steps in which it arrived last. layers: whose gradients it averages, if the level states
    them. elements: 0 if the trace does not state their number."""

    name: str
    seconds: float
    waits: tuple[float, ...]
    last: tuple[float, ...]
    layers: tuple[str, ...] = ()
    elements: int = 0


class Communication(Record, frozen=True, kw_only=True):
    """Times of each rank, and the collective operations of a step in rank 0's order."""

    ranks: tuple[RankTime, ...]
    collectives: tuple[Collective, ...]


class _Key(NamedTuple):
    """Identifies an operation of a step on all ranks. Its position alone does not, because several
    may run at once."""

    name: str
    shapes: str
    number: int  # of those with that name and these shapes


def communication(traces: Sequence[Trace]) -> Communication | None:
    """Return the communication of the ranks with these traces; None if there is only one rank, or
    if the traces show no communication."""
    collectives = _collectives(traces)
    if len(traces) < 2 or not collectives:
        return None
    ranks = []
    for rank, trace in enumerate(traces):
        both = [_times(trace, step) for step in trace.steps]
        total, exposed = (sum(each) / 1e9 / len(both) for each in zip(*both, strict=True))
        waited = sum(one.waits[rank] for one in collectives)
        ranks.append(RankTime(communication=total, exposed=exposed, waited=waited))
    return Communication(ranks=tuple(ranks), collectives=collectives)


def is_collective(event: Event) -> bool:
    """True if it is a collective operation: gloo's record, NCCL's kernel, a direct level's step."""
    if event.category == KERNEL and NCCL in event.name.lower():
        return True
    own = event.category in (KERNEL, OPERATOR) and event.name == DIRECT
    return own or event.name.startswith(GLOO)


# ---------------------------------------------------------------- how it is done


def _times(trace: Trace, step: Event) -> tuple[int, int]:
    """Return the nanoseconds of a step with a collective operation, and those with nothing else."""
    around = (step.start, step.end)
    collective = _within(around, filter(is_collective, trace.events))
    others = [event for event in trace.events if not is_collective(event)]
    on_device = [event for event in others if event.category in ON_DEVICE]
    if on_device:
        computed = _within(around, on_device)
    else:
        operators = _within(around, (e for e in others if e.category == OPERATOR))
        calls = _within(around, (e for e in others if e.name.startswith(CALL)))
        computed = _without(operators, calls)
    exposed = _length(union([*collective, *computed])) - _length(computed)
    return _length(collective), exposed


def _within(around: Interval, events: Iterable[Event]) -> list[Interval]:
    return union(clipped(((event.start, event.end) for event in events), around))


def _length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def _without(intervals: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """Return the parts of disjoint, ordered intervals that none of the others covers."""
    found = []
    for start, end in intervals:
        for first, last in clipped(others, (start, end)):
            if start < first:
                found.append((start, first))
            start = last
        if start < end:
            found.append((start, end))
    return found


def _collectives(traces: Sequence[Trace]) -> tuple[Collective, ...]:
    """Return the operations that every rank has in a step, in rank 0's order."""
    steps = [list(map(_by_key, each)) for each in zip(*map(_of_steps, traces), strict=False)]
    found: dict[_Key, list[list[Event]]] = defaultdict(list)  # a list for each step, by rank
    for ranks in steps:
        for key in ranks[0]:
            if all(key in events for events in ranks):
                found[key].append([events[key] for events in ranks])
    return tuple(_collective(key, by_step) for key, by_step in found.items())


def _of_steps(trace: Trace) -> list[list[Event]]:
    """Return the collective operations of each step."""
    events = list(filter(is_collective, trace.events))
    return [[e for e in events if s.start <= e.start < s.end] for s in trace.steps]


def _by_key(events: Sequence[Event]) -> dict[_Key, Event]:
    counts = Counter[tuple[str, str]]()
    found = {}
    for event in events:
        kind = (event.name, str(event.details.get("Input Dims", "")))
        found[_Key(*kind, counts[kind])] = event
        counts[kind] += 1
    return found


def _collective(key: _Key, by_step: Sequence[Sequence[Event]]) -> Collective:
    steps, ranks = len(by_step), range(len(by_step[0]))
    spent = [[event.nanoseconds for event in events] for events in by_step]
    least = [min(each) for each in spent]
    waits = (sum(each[r] - low for each, low in zip(spent, least, strict=True)) for r in ranks)
    last = Counter(each.index(low) for each, low in zip(spent, least, strict=True))
    first = by_step[0][0].details
    return Collective(
        name=key.name.removeprefix(GLOO),
        seconds=sum(least) / 1e9 / steps,
        waits=tuple(ns / 1e9 / steps for ns in waits),
        last=tuple(last[rank] / steps for rank in ranks),
        layers=tuple(first.get(AVERAGED, ())),
        elements=sum(prod(shape) for shape in _shapes(first.get("Input Dims", ()))),
    )


def _shapes(found: Sequence[object]) -> list[list[int]]:
    """Return the shapes in a trace's ``Input Dims``, where lists of tensors are nested."""
    if found and all(isinstance(size, int) for size in found):
        return [list(found)]  # type: ignore[arg-type]
    return [shape for part in found if isinstance(part, list) for shape in _shapes(part)]
