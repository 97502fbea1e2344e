"""The level that a comparison recommends."""

from __future__ import annotations

from golow.records.comparison import Comparison, Run


def recommended(comparison: Comparison) -> Run | None:
    """The fastest of the levels that match and are faster than eager; None if there is none."""
    found = faster(comparison)
    return min(found, key=lambda run: run.ratio.value if run.ratio else 1.0, default=None)


def faster(comparison: Comparison) -> list[Run]:
    """The levels that match and are faster than eager with confidence."""
    return [
        run
        for run in comparison.runs
        if run.check.verdict == "match" and run.ratio is not None and run.ratio.word == "faster"
    ]
