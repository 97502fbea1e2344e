"""The remedy for a comparison that stayed unclear: more time, or quiet cores."""

from __future__ import annotations

from statistics import median

from golow.records.comparison import Comparison
from golow.report.units import share_text

BUSY = 0.2
"""Share of contended blocks above which more rounds do not help: contention affects levels
unequally, so they are as biased as those before them."""


def is_busy(comparison: Comparison) -> bool:
    """True if the levels had to share their cores with other work."""
    return comparison.race.contended_share > BUSY


def remedy(comparison: Comparison) -> str:
    """The remedy for an unclear comparison, as the end of a sentence."""
    if not is_busy(comparison):
        return "allow a longer time limit."
    lost = _lost(comparison)
    waited = f", for a median of {share_text(lost)} of the time" if lost is not None else ""
    return (
        f"the cores were busy. In {share_text(comparison.race.contended_share)} of the blocks a "
        f"level waited for a core{waited}, and more time does not help: end the other programs "
        "(top lists them), or give golow idle cores with taskset --cpu-list."
    )


def _lost(comparison: Comparison) -> float | None:
    """Time that threads of contended blocks waited for a core, over the blocks' time."""
    waits = [
        block.wait_share
        for run in comparison.runs
        for block in run.blocks
        if block.contended and block.wait_share is not None
    ]
    return median(waits) if waits else None
