"""Results from callgrind's graph: the vendor's entry, the path to it, and the counts on the path.

The graph has sums, no sequence. The path follows, from the entry upwards, the caller that spent
most in the callee. The instructions before the first entry are those of the part that ends there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from golow.programs.profiling.way_down.boundary import ALLOCATORS, DISPATCHER, matches, owner_of
from golow.programs.profiling.way_down.callgrind import Edge, Function, Graph, Part, combined
from golow.programs.profiling.way_down.way_down_record import Frame

SWITCHES = ("golow_begin", "golow_end", "golow::*Worker::count(*")  # not part of the call
INTERPRETER = ("libpython", "python", "_ctypes", "libffi", "_functools")
BEFORE_ENTRY = "--dump-before="


class Counted(NamedTuple):
    """The figures of one call; see `golow.programs.profiling.way_down.way_down_record.LevelWay`."""

    native: tuple[Frame, ...]
    interpreter: int
    entry: Frame | None
    owner: str
    entries: int
    before: int
    inside: int
    after: int
    allocations: int
    dispatches: int


def read(parts: Sequence[Part]) -> Counted:
    """The figures of the call whose parts these are. Raises `ValueError` if nothing was counted."""
    graph = combined(parts)
    if not graph.total:
        raise ValueError("callgrind counted no instruction")
    entries = _outermost_entries(graph, parts[0])
    totals: dict[Function, int] = defaultdict(int)
    for (_, callee), edge in entries.items():
        totals[callee] += edge.cost
    entry = max(totals, key=lambda function: totals[function]) if totals else None
    path = _path(graph, entry or max(graph.own, key=lambda function: graph.own[function]))
    stack = [f for f in path if f != entry and _is_named(f) and not matches(f.plain, SWITCHES)]
    own = [function for function in stack if not _is_interpreter(function)]
    inside = sum(edge.cost for edge in entries.values())
    before = _before(parts) if entry else graph.total
    return Counted(
        native=tuple(map(_frame, own)),
        interpreter=len(stack) - len(own),
        entry=_frame(entry) if entry else None,
        owner=owner_of(entry.plain) if entry else "",
        entries=sum(edge.calls for edge in entries.values()),
        before=before,
        inside=inside,
        after=graph.total - before - inside,
        allocations=_calls(graph, ALLOCATORS),
        dispatches=_calls(graph, DISPATCHER),
    )


def _outermost_entries(graph: Graph, first: Part) -> dict[tuple[Function, Function], Edge]:
    """The calls of entries by functions that no entry has called: by what ran in the first part,
    which ends before the first entry, and by what that called."""
    callees = defaultdict(list)
    for caller, callee in graph.edges:
        callees[caller].append(callee)
    outside = {function for function in first.own if not owner_of(function.plain)}
    waiting = list(outside)
    while waiting:
        for callee in callees[waiting.pop()]:
            if callee not in outside and not owner_of(callee.plain):
                outside.add(callee)
                waiting.append(callee)
    return {
        (caller, callee): edge
        for (caller, callee), edge in graph.edges.items()
        if caller in outside and owner_of(callee.plain)
    }


def _path(graph: Graph, function: Function) -> list[Function]:
    """The heaviest path from where counting began to the function."""
    callers: dict[Function, list[tuple[int, Function]]] = defaultdict(list)
    for (caller, callee), edge in graph.edges.items():
        callers[callee].append((edge.cost, caller))
    path = [function]
    while found := [(cost, f) for cost, f in callers[path[-1]] if f not in path]:
        path.append(max(found)[1])
    return path[::-1]


def _before(parts: Sequence[Part]) -> int:
    """Instructions up to the first entry."""
    total = 0
    for part in parts:
        total += part.total
        if part.trigger.startswith(BEFORE_ENTRY):
            break
    return total


def _calls(graph: Graph, patterns: Sequence[str]) -> int:
    """Calls of such functions by others: an allocator may call a second one for the same memory."""
    return sum(
        edge.calls
        for (caller, callee), edge in graph.edges.items()
        if matches(callee.plain, patterns)
        and not (patterns is ALLOCATORS and matches(caller.plain, patterns))
    )


def _is_named(function: Function) -> bool:
    """Stubs between libraries, and code made at run time, have only an address."""
    return not function.name.startswith("0x")


def _is_interpreter(function: Function) -> bool:
    return Path(function.object).name.startswith(INTERPRETER)


def _frame(function: Function) -> Frame:
    return Frame(name=function.plain, place=Path(function.object).name)
