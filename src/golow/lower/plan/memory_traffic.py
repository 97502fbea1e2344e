"""Memory traffic: how many bytes the steps of a plan must move, and how many of them for layout
alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from golow.lower.plan.plan import Plan, Step

SCRATCH = ".scratch"
"""How the names of buffers end that one step uses and nothing reads afterwards."""

LAYOUT_ALONE = frozenset(
    {
        "concatenate",
        "copy",
        "expand",
        "flip",
        "pad",
        "permute",
        "pixel_unshuffle",
        "reorder",
        "reshape",
        "slice",
        "turn",
    }
)
"""Operations of steps that compute nothing: their results are elements of what they read, in
another place or order."""


LOOKUPS = frozenset({"gather", "index", "narrow_take", "take"})
"""Operations that read of their largest operand, a table, no more than they write."""


def moved_bytes(plan: Plan, step: Step) -> int:
    """Bytes that the step must move: all that it reads and writes, each time once. Its scratch
    memory does not count: another implementation might need none."""
    read, written = (
        [o.bytes for o in operands if not plan.buffers[o.buffer].name.endswith(SCRATCH)]
        for operands in (step.reads, step.writes)
    )
    if step.operation in LOOKUPS:
        read = [*sorted(read)[:-1], min(max(read), sum(written))]
    return sum(read) + sum(written) + sum(_place_bytes(plan, place) for place in step.places)


def moves_only(step: Step) -> bool:
    """True if the step moves elements for their layout alone."""
    return step.operation in LAYOUT_ALONE


def layout_bytes(plan: Plan) -> int:
    """Bytes that an iteration moves for layout alone."""
    return sum(moved_bytes(plan, s) for s in plan.steps if moves_only(s) and not s.once)


def _place_bytes(plan: Plan, place: str) -> int:
    """The size of a whole place, which may be a piece of the arena."""
    return plan.pieces[place][1] if place in plan.pieces else plan.sizes[place]
