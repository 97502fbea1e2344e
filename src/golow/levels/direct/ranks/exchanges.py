"""Compares the plans of the ranks of a training run: all must exchange the same tensors."""

from __future__ import annotations

import hashlib
from typing import Any

from golow.levels.direct.ranks.meeting import Meeting
from golow.lower.ir.operator import PREFIX
from golow.lower.operators.all_reduce import AllReduce
from golow.records.errors import GolowError

OPERATION = AllReduce.op().removeprefix(PREFIX)
"""Name of the steps of a plan that average over ranks."""


class Exchanges:
    """The exchanges of a training run whose ranks build their first plans together, and may build
    others, such as those of further batch sizes, alone. meeting: of the ranks, if there are any."""

    def __init__(self, meeting: Meeting | None) -> None:
        self._meeting = meeting
        self._known = b""

    def require_fitting(self, built: Any) -> None:
        """Raise `GolowError` unless the plan exchanges the same tensors as all other plans here and
        as the first plans on other ranks."""
        exchanged = digest(built)
        if self._meeting is None or not exchanged:
            return
        if not self._known:
            require_same(self._meeting, built)
            self._known = exchanged
        elif self._known != exchanged:
            raise GolowError(
                "a plan exchanges its gradients in a different order from the first one",
                "batches of this size cannot be trained in several ranks: use one size.",
            )


def require_same(meeting: Meeting, built: Any) -> None:
    """Compare the plans that all ranks have built. Raises `GolowError` if they do not fit: the
    ranks would wait for one another forever, or mix up their gradients."""
    name = meeting.numbered("plan")
    meeting.require_same(name, digest(built), "the plan's exchange of gradients")


def digest(built: Any) -> bytes:
    """Identifies the tensors that a built plan averages over ranks, by shape, order and layout of
    the parameters; empty if it averages nothing."""
    steps = [step for step in built.plan.steps if step.operation == OPERATION]
    exchanged = [[(operand.shape, operand.layout) for operand in step.reads] for step in steps]
    held = sorted(
        (target, str(tensor.layout))
        for (kind, target), tensor in built.inputs.items()
        if kind == "parameter"
    )
    found = hashlib.sha256(repr((exchanged, held)).encode()).hexdigest()
    return found.encode() if exchanged else b""
