"""The loss of log probabilities."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.operators.nll_loss import NllLoss


def build(writer: Writer, given: NllLoss) -> None:
    """``-sum`` or ``-mean`` of the targets' log probabilities, and how many count."""
    logs, target = writer.plain(given.logs), writer.plain(given.target)
    counts = writer.line("counts", f"tf.not_equal({target}, {given.ignored})")
    index = f"tf.where({counts}, {target}, 0)"
    picked = f"tf.gather({logs}, {index}, axis=1, batch_dims=1)"
    total = writer.line("total", f"tf.reduce_sum(tf.cast({counts}, tf.float32))")
    loss = f"-tf.reduce_sum(tf.where({counts}, {picked}, 0.0))"
    writer.put(f"{loss} / {total}" if given.reduction == "mean" else loss)
    writer.put(total, index=1)


IMPLEMENTATIONS = (Implementation(NllLoss, build),)
