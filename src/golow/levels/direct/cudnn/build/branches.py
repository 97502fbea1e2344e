"""Steps that run on other streams, and where the main stream waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.direct.cudnn.steps.built_plan import (
    WINDOW,
    AverageCall,
    Call,
    EngineCall,
    FlatCall,
)
from golow.lower.plan.plan import Step


def runs_beside(call: Call) -> bool:
    """True if the call is enqueued on the side stream."""
    return isinstance(call, EngineCall) and call.side


def joins(calls: Sequence[Call], steps: Sequence[Step]) -> list[list[int]]:
    """For every step, return the side steps, and means over ranks, that must be done before it
    begins.

    These are those whose results it reads or whose operands it writes, and the side steps that
    started a window ago. The window matters because the arena protects the operands of a side step
    from being overwritten only that long. A step over whole places waits for all side steps, and
    for the means of its own places. A mean over ranks has its own stream, which waits in place of
    the main stream. A step of loading waits for nothing, since iterations leave it out.
    """
    found: list[list[int]] = []
    open_: list[int] = []
    for position, (call, step) in enumerate(zip(calls, steps, strict=True)):
        if step.once:  # iterations leave it out
            found.append([])
            continue
        now = [k for k in open_ if _must_wait(position, call, step, k, calls[k], steps[k])]
        found.append(now)
        if isinstance(call, AverageCall):
            open_.append(position)
            continue
        open_ = [started for started in open_ if started not in now]
        if runs_beside(call):
            open_.append(position)
    return found


def _must_wait(
    position: int, call: Call, step: Step, started: int, other: Call, beside: Step
) -> bool:
    if isinstance(other, AverageCall):  # its operands have their memory until their update
        own = {place for place, _ in other.places}
        return not own.isdisjoint(step.places) or _updates(call, own) or _conflict(beside, step)
    if isinstance(call, AverageCall):
        return _conflict(beside, step)
    return isinstance(call, FlatCall) or position >= started + WINDOW or _conflict(beside, step)


def _updates(call: Call, places: set[str]) -> bool:
    return isinstance(call, FlatCall) and call.first in places


def _conflict(beside: Step, step: Step) -> bool:
    """True if one of them writes what the other reads or writes."""
    wrote = {operand.buffer for operand in beside.writes}
    touched = wrote | {operand.buffer for operand in beside.reads}
    return any(operand.buffer in wrote for operand in step.reads) or any(
        operand.buffer in touched for operand in step.writes
    )
