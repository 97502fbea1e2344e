"""The execution summary: what a step's time went to.

Things overlap: while a kernel runs, the host launches the next one. As in the PyTorch profiler's
plugin for TensorBoard, every moment counts once, for whatever comes first in `ROLES`; the shares
therefore add up to the whole of the steps. The plugin's "execution summary" has fewer rows: it adds
up copies, and the calls of the runtime.
https://github.com/pytorch/kineto/blob/main/tb_plugin/README.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from golow.programs.profiling.trace import (
    ANNOTATION,
    COPY,
    KERNEL,
    MEMSET,
    OPERATOR,
    RUNTIME,
    Event,
    Trace,
)
from golow.records.record import Record

OTHER = "other"
ROLES = (
    "kernel",
    "copy to the device",
    "copy to the host",
    "copy on the device",
    "memset",
    "synchronisation",
    "launch",
    "other runtime call",
    "data loading",
    "operator on the host",
    OTHER,
)
"""In order of their priority. The last is the rest: Python, and waiting."""

COPIES = {"HtoD": "copy to the device", "DtoH": "copy to the host"}

Interval = tuple[int, int]
"""From a nanosecond to another one, which does not belong to it."""


class Part(Record, frozen=True, kw_only=True):
    """Seconds of a step that went to a role, the mean of all steps, and their share of the step."""

    role: str
    seconds: float
    share: float


def execution_summary(trace: Trace) -> tuple[Part, ...]:
    """The parts of a step, in the order of `ROLES`; those that do not occur are left out."""
    total = sum(step.nanoseconds for step in trace.steps)
    found = dict.fromkeys(ROLES, 0)
    for step in trace.steps:
        by_role: dict[str, list[Interval]] = {role: [] for role in ROLES}
        for event in trace.events:
            role = role_of(event)
            if role and event.start < step.end and event.end > step.start:
                by_role[role].append((event.start, event.end))
        for role, nanoseconds in divide((step.start, step.end), by_role).items():
            found[role] += nanoseconds
    return tuple(
        Part(role=role, seconds=ns / 1e9 / len(trace.steps), share=ns / total)
        for role, ns in found.items()
        if ns
    )


def role_of(event: Event) -> str:
    """The role of an event; empty for one that has none, such as an annotation."""
    if event.category == KERNEL:
        return "kernel"
    if event.category == MEMSET:
        return "memset"
    if event.category == COPY:
        return next((r for key, r in COPIES.items() if key in event.name), "copy on the device")
    if event.category in RUNTIME:
        if "Synchronize" in event.name or "WaitEvent" in event.name:
            return "synchronisation"
        return "launch" if "Launch" in event.name else "other runtime call"
    if "DataLoader" in event.name and event.category in (OPERATOR, ANNOTATION):
        return "data loading"
    return "operator on the host" if event.category == OPERATOR else ""


def divide(step: Interval, by_role: dict[str, list[Interval]]) -> dict[str, int]:
    """Nanoseconds of the step for each role: every moment for the first role with an interval
    there, the rest for `OTHER`. They add up to the step."""
    covered: list[Interval] = []
    found: dict[str, int] = {}
    before = 0
    for role in ROLES[:-1]:
        covered = union([*covered, *clipped(by_role.get(role, ()), step)])
        length = sum(end - start for start, end in covered)
        found[role], before = length - before, length
    found[OTHER] = step[1] - step[0] - before
    return found


def clipped(intervals: Iterable[Interval], to: Interval) -> list[Interval]:
    """Parts of the intervals within this one."""
    cut = ((max(start, to[0]), min(end, to[1])) for start, end in intervals)
    return [(start, end) for start, end in cut if start < end]


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """Union of the intervals, as disjoint ones in order."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
