"""A plan: a graph fixed for execution, as ordered steps over buffers with offsets in one arena.

The plan states which operations run in which order and where their operands are stored; the level
that made the plan holds the code that runs them. Nothing here imports a framework.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from golow.lower.ir.graph import Phase
from golow.lower.plan.arena_offsets import CACHE_LINE, Lifetime, assign_offsets

# arena: shared over time by liveness. once: the same, for steps that run only when loading.
# constant: written when loading, read by every iteration. state: what training changes, kept
# from step to step. input: the batches' own memory. A level may add further places.
Place = str
SHARED: tuple[Place, ...] = ("arena", "once")


class Buffer(NamedTuple):
    """A piece of memory, named after the first value that it holds."""

    name: str
    bytes: int
    place: Place
    offset: int = 0


class Operand(NamedTuple):
    """A tensor as a step sees it: the buffer that holds it, its shape, and its layout in words.
    bytes: of its elements, each once, however often a view repeats them; 0 if another step of the
    operation moves them."""

    buffer: int
    shape: tuple[int, ...]
    layout: str
    bytes: int


class Step(NamedTuple):
    """One operation on operands. modules: the layers that it executes; the first names the step.
    places: those that it reads or writes as a whole, one mention for each time."""

    operation: str
    modules: tuple[str, ...]
    phase: Phase
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    implementation: str = ""
    once: bool = False
    places: tuple[Place, ...] = ()


class Plan(NamedTuple):
    """Steps in order, those that run once first, and the buffers they index.

    sizes: bytes of each place. pieces: offset and bytes of each place that is within the arena.
    """

    name: str
    steps: tuple[Step, ...]
    buffers: tuple[Buffer, ...]
    sizes: dict[str, int]
    pieces: dict[Place, tuple[int, int]] = {}


def make_plan(
    name: str,
    steps: Sequence[Step],
    buffers: Sequence[Buffer],
    kept: Iterable[int],
    alignment: int = CACHE_LINE,
    late: Mapping[int, int] | None = None,
    beside: Mapping[int, int] | None = None,
    within: Collection[Place] = (),
) -> Plan:
    """The plan with offsets: buffers of the arena share memory by liveness, the others are
    adjacent.

    kept: buffers of the arena that are read after the last step, such as the model's output.
    alignment: every offset is a multiple of this number of bytes. late: steps that overlap with the
    steps after them, each with the step before which it has certainly finished. beside: buffers
    that are at the offset of another one, counted in elements, but in their own place: if its
    elements are half as long, its offset in bytes is half as large. within: places of such buffers
    that are in the arena as one piece, from the first step that uses any of them to the last.
    """
    placed = list(buffers)
    sizes: dict[str, int] = {}
    whole = (0, len(steps))
    spans = _spans(steps, set(kept), late or {})
    places = dict.fromkeys(("arena", "once", "constant", "state", *(b.place for b in buffers)))
    members = {p: [i for i, b in enumerate(buffers) if b.place == p] for p in places}
    for place in (p for p in places if p not in ("input", *SHARED)):
        lifetimes = [Lifetime(buffers[i].bytes, *whole) for i in members[place]]
        sizes[place] = _set_side_by_side(placed, members[place], lifetimes, alignment)
    for index, leader in (beside or {}).items():
        mine, other = buffers[index], placed[leader]
        if not other.bytes:  # a parameter without elements
            continue
        placed[index] = mine._replace(offset=other.offset * mine.bytes // other.bytes)
        sizes[mine.place] = sizes[other.place] * mine.bytes // other.bytes
    pieces: dict[Place, tuple[int, int]] = {}
    for place in SHARED:
        inside = [p for p in within if p in members] if place == "arena" else []
        lifetimes = [Lifetime(buffers[i].bytes, *spans.get(i, whole)) for i in members[place]]
        lifetimes += [
            Lifetime(sizes[p], *_span([spans.get(i, whole) for i in members[p]])) for p in inside
        ]
        layout = assign_offsets(lifetimes, alignment)
        for index, offset in zip(members[place], layout.offsets, strict=False):
            placed[index] = buffers[index]._replace(offset=offset)
        for piece, offset in zip(inside, layout.offsets[len(members[place]) :], strict=True):
            pieces[piece] = offset, sizes.pop(piece)
            for index in members[piece]:
                own = placed[index]
                placed[index] = own._replace(place=place, offset=offset + own.offset)
        sizes[place] = layout.bytes
    sizes = {place: sizes[place] for place in places if place in sizes}
    return Plan(name, tuple(steps), tuple(placed), sizes, pieces)


def _set_side_by_side(
    placed: list[Buffer], members: Sequence[int], lifetimes: Sequence[Lifetime], alignment: int
) -> int:
    """Give the members of one place their offsets; the bytes of the place."""
    layout = assign_offsets(lifetimes, alignment)
    for index, offset in zip(members, layout.offsets, strict=True):
        placed[index] = placed[index]._replace(offset=offset)
    return layout.bytes


def _span(spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """From the first to the last of several spans."""
    return min(first for first, _ in spans), max(last for _, last in spans)


def _spans(
    steps: Sequence[Step], kept: set[int], late: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """First and last step of every buffer."""
    spans: dict[int, tuple[int, int]] = {}
    for position, step in enumerate(steps):
        for operand in (*step.reads, *step.writes):
            first, last = spans.get(operand.buffer, (position, position))
            done = min(late.get(position, position), len(steps))
            spans[operand.buffer] = (first, max(last, done))
    for buffer in kept:
        spans[buffer] = (spans.get(buffer, (0, 0))[0], len(steps))
    return spans
