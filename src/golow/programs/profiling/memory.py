"""Memory over a step: its blocks, each with a category and a lifetime; the peak, and what it is
made of. Where blocks come from is in `allocations` (a trace) and `arena` (a plan).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from golow.programs.profiling.trace import Event, Trace
from golow.records.record import Record
from golow.worker.protocol import (
    GRADIENTS,
    INPUTS,
    OPTIMIZER_STATE,
    PARAMETERS,
    WORKSPACE,
)

OTHER, ACTIVATIONS, TEMPORARY = "other", "activations", "temporary"
CATEGORIES = (
    PARAMETERS,
    OPTIMIZER_STATE,
    GRADIENTS,
    INPUTS,
    OTHER,
    ACTIVATIONS,
    TEMPORARY,
    WORKSPACE,
)
"""From what is always there to what is there for moments. Parameters include buffers, such as
running statistics. Other is memory of unknown purpose that was held before the step."""

Axis = Literal["seconds", "steps"]


class Block(Record, frozen=True, kw_only=True):
    """Memory for one purpose.

    name: of the tensor, if it is known. first, last: the moments of its allocation and its release,
    0 if it was held before the step, the step's length if it is held after it. operator, layer,
    phase: what allocated it, empty if that is not known. place, offset: where it is stored, in a
    plan.
    """

    bytes: int
    category: str
    first: float
    last: float
    name: str = ""
    operator: str = ""
    layer: str = ""
    phase: str = ""
    place: str = ""
    offset: int | None = None


class Peak(Record, frozen=True, kw_only=True):
    """The first moment at which most was allocated, bytes in all, and bytes of each category."""

    moment: float
    bytes: int
    categories: dict[str, int]


class MemoryProfile(Record, frozen=True, kw_only=True):
    """The memory of a level over one step.

    axis: what moments count: seconds, or steps of a plan. length: of the step on this axis.
    seconds: when each step of the plan begins and the last one ends, if they are timed. reserved:
    bytes that the level has taken from the system or the device at most, None if that is not known.
    sizes: bytes of each place of a plan.
    """

    axis: Axis
    length: float
    blocks: tuple[Block, ...]
    peak: Peak
    seconds: tuple[float, ...] = ()
    reserved: int | None = None
    sizes: dict[str, int] = {}


def median_step(trace: Trace) -> Event:
    """The step whose memory is looked at: that of the median time, of two the shorter."""
    ordered = sorted(trace.steps, key=lambda step: step.nanoseconds)
    return ordered[(len(ordered) - 1) // 2]


def memory_profile(
    blocks: Sequence[Block],
    length: float,
    *,
    axis: Axis = "seconds",
    seconds: tuple[float, ...] = (),
    reserved: int | None = None,
    sizes: dict[str, int] | None = None,
) -> MemoryProfile:
    """The profile of these blocks; the largest comes first."""
    ordered = sorted(blocks, key=lambda block: (-block.bytes, block.first, block.name))
    return MemoryProfile(
        axis=axis,
        length=length,
        blocks=tuple(ordered),
        peak=peak_of(blocks, length),
        seconds=seconds,
        reserved=reserved,
        sizes=sizes or {},
    )


def timeline(blocks: Sequence[Block], length: float) -> Iterator[tuple[float, dict[str, int]]]:
    """Bytes of each category from every moment on at which they change, from 0 on."""
    changes: dict[float, Counter[str]] = defaultdict(Counter, {0.0: Counter()})
    for block in blocks:
        changes[block.first][block.category] += block.bytes
        if block.last < length:
            changes[block.last][block.category] -= block.bytes
    held = dict.fromkeys(CATEGORIES, 0)
    for moment in sorted(changes):
        for category, change in changes[moment].items():
            held[category] += change
        yield moment, dict(held)


def peak_of(blocks: Sequence[Block], length: float) -> Peak:
    """The peak of these blocks."""
    moment, held = max(timeline(blocks, length), key=lambda found: sum(found[1].values()))
    categories = {category: size for category, size in held.items() if size}
    return Peak(moment=moment, bytes=sum(held.values()), categories=categories)


def category(known: str, phase: str, *, within_operator: bool, outlives: bool) -> str:
    """The category of a block: the one that is known, or else what its lifetime states.

    Freed before the operator that allocated it ended (``within_operator``): workspace. Allocated in
    the forward pass: an activation if it outlives, in training this pass, in inference its operator
    (``outlives``). The rest is temporary.
    """
    if known:
        return known
    if within_operator:
        return WORKSPACE
    return ACTIVATIONS if phase == "forward" and outlives else TEMPORARY
