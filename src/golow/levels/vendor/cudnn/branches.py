"""Steps that run beside the ones that follow them, and where they have to join again."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.vendor.cudnn.steps import WINDOW, Call, EngineCall, FlatCall
from golow.lower.plan import Step


def runs_beside(call: Call) -> bool:
    """Whether the call is enqueued beside the rest."""
    return isinstance(call, EngineCall) and call.side


def joins(calls: Sequence[Call], steps: Sequence[Step]) -> list[list[int]]:
    """For every step the steps beside it that have to be done before it begins.

    Those are the ones whose results it reads, whose operands it writes (in place: the arena keeps
    them from being overwritten by others for as long as the window), and those started a window
    ago. A step over whole places waits for all.
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
    """Whether either writes what the other one reads or writes."""
    wrote = {operand.buffer for operand in beside.writes}
    touched = wrote | {operand.buffer for operand in beside.reads}
    return any(operand.buffer in wrote for operand in step.reads) or any(
        operand.buffer in touched for operand in step.writes
    )
