"""What the ranks of a training must have in common: the exchanges of their plans."""

from __future__ import annotations

import hashlib

from golow.levels.direct.ranks.meeting import Meeting
from golow.lower.ir.operator import PREFIX
from golow.lower.operators.all_reduce import AllReduce
from golow.lower.plan.plan import Plan

OPERATION = AllReduce.op().removeprefix(PREFIX)
"""Of the steps of a plan that average over ranks."""


def require_same_exchanges(meeting: Meeting, plan: Plan) -> None:
    """Raise `GolowError` unless the plans of all ranks average tensors of the same shapes and
    layouts in the same order: otherwise they would wait for one another for ever, or mix them up.
    """
    exchanged = [
        [(operand.shape, operand.layout) for operand in step.reads]
        for step in plan.steps
        if step.operation == OPERATION
    ]
    digest = hashlib.sha256(repr(exchanged).encode()).hexdigest()
    meeting.require_same(meeting.numbered("plan"), digest.encode(), "the plan's exchanges")
