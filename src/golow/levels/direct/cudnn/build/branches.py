"""Steps that run on the side stream, and where the main stream waits for them."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.direct.cudnn.steps.built_plan import WINDOW, Call, EngineCall, FlatCall
from golow.lower.plan.plan import Step


def runs_beside(call: Call) -> bool:
    """True if the call is enqueued on the side stream."""
    return isinstance(call, EngineCall) and call.side


def joins(calls: Sequence[Call], steps: Sequence[Step]) -> list[list[int]]:
    """For every step, return the side steps that must be done before it begins.

    These are the side steps whose results it reads or whose operands it writes, and those that
    started a window ago. The window matters because the arena protects the operands of a side step
    from being overwritten only that long. A step over whole places waits for all of them.
    """
    found: list[list[int]] = []
    open_: list[int] = []
    for position, (call, step) in enumerate(zip(calls, steps, strict=True)):
        now = [
            started
            for started in open_
            if isinstance(call, FlatCall)
            or position >= started + WINDOW
            or _conflict(steps[started], step)
        ]
        found.append(now)
        open_ = [started for started in open_ if started not in now]
        if runs_beside(call):
            open_.append(position)
    return found


def _conflict(beside: Step, step: Step) -> bool:
    """True if one of them writes what the other reads or writes."""
    wrote = {operand.buffer for operand in beside.writes}
    touched = wrote | {operand.buffer for operand in beside.reads}
    return any(operand.buffer in wrote for operand in step.reads) or any(
        operand.buffer in touched for operand in step.writes
    )
