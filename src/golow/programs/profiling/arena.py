"""The memory of a step from a plan: its buffers, and the steps from first to last that use them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from statistics import median

from golow.programs.profiling.memory import (
    OTHER,
    Block,
    MemoryProfile,
    category,
    median_step,
    memory_profile,
)
from golow.programs.profiling.trace import KERNEL, OPERATOR, Trace
from golow.records.comparison import LayerTime
from golow.worker.protocol import ArenaReport, PlannedBuffer

ARENA = "arena"
"""The place whose bytes buffers share over time."""


def memory_of_plan(
    report: ArenaReport, trace: Trace, layers: Sequence[LayerTime] = ()
) -> MemoryProfile:
    """The memory of a plan; its moments are steps.

    trace, layers: times of the same steps. If neither has as many, the profile has no seconds.
    """
    blocks = [_block(report, buffer) for buffer in report.buffers if buffer.bytes]
    spent = _seconds(report, trace, layers)
    return memory_profile(
        blocks,
        len(report.steps),
        axis="steps",
        seconds=tuple(accumulate(spent, initial=0.0)) if spent else (),
        reserved=sum(report.sizes.values()),
        sizes=report.sizes,
    )


def _seconds(report: ArenaReport, trace: Trace, layers: Sequence[LayerTime]) -> list[float]:
    """The seconds of each step, from the trace, or else the median of the separate clock."""
    one = median_step(trace)
    traced = [
        event.nanoseconds / 1e9
        for event in trace.in_steps(OPERATOR, KERNEL)
        if one.start <= event.start < one.end
    ]
    timed = [median(layer.ns) / 1e9 for layer in layers]
    return next((found for found in (traced, timed) if len(found) == len(report.steps)), [])


def _block(report: ArenaReport, buffer: PlannedBuffer) -> Block:
    steps, shared = report.steps, buffer.place == ARENA
    maker = steps[min(buffer.first, len(steps) - 1)]
    trains = any(step.phase == "backward" for step in steps)
    kept = buffer.last >= len(steps)
    known = buffer.category or ("" if shared else OTHER)
    return Block(
        bytes=buffer.bytes,
        category=category(
            known,
            maker.phase,
            within_operator=buffer.first == buffer.last,
            outlives=not trains or kept or steps[buffer.last].phase != "forward",
        ),
        first=buffer.first,
        last=min(buffer.last + 1, len(steps)),
        name=buffer.name,
        operator=maker.operation if shared else "",
        layer=maker.layer if shared else buffer.name.rpartition(".")[0],
        phase=maker.phase if shared else "",
        place=buffer.place,
        offset=buffer.offset,
    )
