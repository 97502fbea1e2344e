"""The loss of log probabilities."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.operators.nll_loss import NllLoss


def build(writer: Writer, given: NllLoss) -> None:
    """``-sum`` or ``-mean`` of the targets' log probabilities, and how many count."""
    logs, target = writer.plain(given.logs), writer.plain(given.target)
    counts = writer.line("counts", f"{target} != {given.ignored}")
    index = f"jnp.where({counts}, {target}, 0)[:, None]"
    picked = f"jnp.take_along_axis({logs}, {index}, axis=1)[:, 0]"
    total = writer.line("total", f"jnp.sum({counts}).astype(jnp.float32)")
    loss = f"-jnp.sum(jnp.where({counts}, {picked}, 0))"
    writer.put(f"{loss} / {total}" if given.reduction == "mean" else loss)
    writer.put(total, index=1)


IMPLEMENTATIONS = (Implementation(NllLoss, build),)
