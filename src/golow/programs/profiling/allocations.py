"""The memory of a step from a trace: what the allocator gave out and took back, matched by address.

A release without an allocation belongs to memory that was held before. On a CPU the trace counts
what PyTorch's allocator gave out, on a GPU what its caching allocator did, in blocks of its sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from golow.programs.profiling.memory import (
    OTHER,
    Block,
    MemoryProfile,
    category,
    median_step,
    memory_profile,
)
from golow.programs.profiling.places import Innermost, Places
from golow.programs.profiling.trace import ANNOTATION, OPERATOR, Allocation, Event, Trace
from golow.records.errors import Unsupported
from golow.worker.protocol import PHASE, KnownBlock, Snapshot

RUNNERS = ("autograd::", "torch::autograd::", "torch::jit::")
"""Names of code that runs operators and is not one: autograd's engine, its nodes, TorchScript's
graphs."""

NOTHING = Snapshot(step=0)


class Span(NamedTuple):
    """Bytes at an address, from its allocation to its release; each is None if it is not in the
    step."""

    address: int
    bytes: int
    allocated: Allocation | None
    released: int | None


def memory_of_trace(trace: Trace, *, on_device: bool) -> MemoryProfile:
    """The memory of one step of the trace, on the device or on the host.

    Raises `Unsupported` if the trace has no allocations and knows of no memory.
    """
    step = median_step(trace)
    number = int(step.name.rpartition(" ")[2])
    known = {snapshot.step: snapshot for snapshot in trace.snapshots}
    before, after = known.get(number - 1, NOTHING), known.get(number, NOTHING)
    allocations = [
        item
        for item in trace.allocations
        if item.on_device == on_device and item.address is not None and item.moment < step.end
    ]
    if not allocations and not before.blocks:
        raise Unsupported("", "it does not record allocations or plan its memory")
    blocks = _Blocks(trace, step, before, after)
    spans = _spans(allocations, before.blocks, step)
    found = [blocks.of(span) for span in spans]
    rest = _held_before(before, allocations, step) - sum(
        span.bytes for span in spans if span.allocated is None
    )
    if rest > 0:
        found.append(blocks.unknown(rest))
    reserved = [item.reserved for item in allocations if item.moment >= step.start]
    return memory_profile(
        found,
        step.nanoseconds / 1e9,
        reserved=max((size for size in (*reserved, after.reserved) if size), default=None),
    )


def _spans(
    allocations: Sequence[Allocation], known: Sequence[KnownBlock], step: Event
) -> list[Span]:
    """Spans of memory allocated at some moment of the step."""
    held = _held_at(step.start, allocations, known)
    done: list[Span] = []
    for item in allocations:
        if item.moment < step.start:
            continue
        address = item.address or 0
        begun = held.pop(address, None)
        if item.bytes > 0:
            if begun is not None:  # its release was not recorded
                done.append(begun._replace(released=item.moment))
            held[address] = Span(address, item.bytes, item, None)
        elif begun is not None and begun.allocated is not None:
            done.append(begun._replace(released=item.moment))
        else:  # The allocator rounds sizes, which the user of a block does not know.
            done.append(Span(address, -item.bytes, None, item.moment))
    return [*done, *held.values()]


def _held_at(
    start: int, allocations: Sequence[Allocation], known: Sequence[KnownBlock]
) -> dict[int, Span]:
    """Blocks held when the step starts, by address: those allocated and not released in the
    trace before, and what the program knows."""
    held = {block.address: Span(block.address, block.bytes, None, None) for block in known}
    for item in allocations:
        if item.moment < start:
            held.pop(item.address or 0, None)
            if item.bytes > 0:
                held[item.address or 0] = Span(item.address or 0, item.bytes, None, None)
    return held


def _held_before(before: Snapshot, allocations: Sequence[Allocation], step: Event) -> int:
    """Bytes that a device's allocator had given out before the step; 0 if it does not report it."""
    if before.allocated is not None:
        return before.allocated
    first = next((item for item in allocations if item.moment >= step.start), None)
    if first is None or first.allocated is None or not first.on_device:
        return 0
    return first.allocated - first.bytes


class _Blocks:
    """Makes blocks of spans: finds who allocated them, and what for."""

    def __init__(self, trace: Trace, step: Event, before: Snapshot, after: Snapshot) -> None:
        self._step, self._before, self._after = step, _by_address(before), _by_address(after)
        self._places = Places(trace)
        self._operators = Innermost(
            [
                event
                for event in trace.events
                if event.category == OPERATOR and step.start <= event.start < step.end
            ]
        )
        phases = [
            event
            for event in trace.events
            if event.category == ANNOTATION
            and event.name.startswith(PHASE)
            and step.start <= event.start < step.end
        ]
        self._trains = any(event.name == f"{PHASE}backward" for event in phases)
        forward = [event.end for event in phases if event.name == f"{PHASE}forward"]
        self._forward_end = max(forward, default=step.end)
        updates = [event.start for event in phases if event.name == f"{PHASE}update"]
        self._update_start = max(updates, default=step.end)

    def of(self, span: Span) -> Block:
        """The block of a span."""
        return self._held(span) if span.allocated is None else self._made(span, span.allocated)

    def unknown(self, size: int) -> Block:
        """Bytes held before the step that nothing in the trace or the snapshots names."""
        return Block(bytes=size, category=OTHER, first=0.0, last=self._moment(None))

    def _held(self, span: Span) -> Block:
        known = self._before.get(span.address)
        return Block(
            bytes=span.bytes,
            category=known.category if known else OTHER,
            first=0.0,
            last=self._moment(span.released),
            name=known.name if known else "",
            layer=known.name.rpartition(".")[0] if known else "",
        )

    def _made(self, span: Span, allocated: Allocation) -> Block:
        operator = self._operator(allocated)
        end = self._step.end if span.released is None else span.released
        # Some levels release the gradients in the update, and state what they hold before it.
        kept = span.released is None or allocated.moment < self._update_start <= end
        known = self._after.get(span.address) if kept else None
        place = self._places.at(allocated.lane, allocated.moment)
        return Block(
            bytes=span.bytes,
            category=category(
                known.category if known else "",
                place.phase,
                within_operator=operator is not None and end <= operator.end,
                outlives=end > self._forward_end if self._trains else operator is not None,
            ),
            first=self._moment(allocated.moment),
            last=self._moment(span.released),
            name=known.name if known else "",
            operator=self._operator_name(operator, allocated),
            layer=place.layer,
            phase=place.phase,
        )

    def _operator(self, allocated: Allocation) -> Event | None:
        """The outermost operator around an allocation. Autograd's nodes, compiled graphs and
        TorchScript's functions, whose names have no namespace, are none."""
        position = self._operators.position(allocated.lane, allocated.moment)
        found = None
        for place in () if position is None else self._operators.chain(position):
            event = self._operators.events[place]
            if "::" in event.name and not event.name.startswith(RUNNERS):
                found = event
        return found

    def _operator_name(self, operator: Event | None, allocated: Allocation) -> str:
        around = operator or self._operators.at(allocated.lane, allocated.moment)
        return around.name if around else ""

    def _moment(self, nanosecond: int | None) -> float:
        """Seconds from the step's start; the step's length for what is held after it."""
        end = self._step.end if nanosecond is None else nanosecond
        return (end - self._step.start) / 1e9


def _by_address(snapshot: Snapshot) -> Mapping[int, KnownBlock]:
    return {block.address: block for block in snapshot.blocks}
