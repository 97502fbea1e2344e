"""The loss of log probabilities."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.operators.nll_loss import NllLoss


def build(writer: Writer, given: NllLoss) -> None:
    """``-sum`` or ``-mean`` of the targets' log probabilities, and how many count."""
    logs, target = writer.plain(given.logs), writer.plain(given.target)
    settings = f"ignore_index={given.ignored}, reduction={given.reduction!r}"
    writer.put(f"F.nll_loss({logs}, {target}, {settings})")
    writer.put(f"paddle.sum(paddle.cast({target} != {given.ignored}, paddle.float32))", index=1)


IMPLEMENTATIONS = (Implementation(NllLoss, build),)
