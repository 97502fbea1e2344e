"""The level that a comparison recommends, and whether eager, its baseline, is right."""

from __future__ import annotations

from golow.levels import ladder
from golow.records.comparison import Comparison, Run


def recommended(comparison: Comparison) -> Run | None:
    """The fastest of the levels that match and are faster than eager, or if eager is wrong the
    fastest of those that match; None if there is none."""
    found = right(comparison) if wrong_eager(comparison) else faster(comparison)
    return min(found, key=lambda run: run.ratio.value if run.ratio else 1.0, default=None)


def wrong_eager(comparison: Comparison) -> Run | None:
    """Eager's run if it differs from float64, else None."""
    eager = ladder.baseline(comparison.workload.ranks)
    wrong = (
        run for run in comparison.runs if run.level == eager and run.check.verdict == "differs"
    )
    return next(wrong, None)


def right(comparison: Comparison) -> list[Run]:
    """The levels other than eager that match and have a ratio."""
    eager = ladder.baseline(comparison.workload.ranks)
    return [
        run
        for run in comparison.runs
        if run.check.verdict == "match" and run.ratio is not None and run.level != eager
    ]


def faster(comparison: Comparison) -> list[Run]:
    """The levels that match and are faster than eager with confidence."""
    return [run for run in right(comparison) if run.ratio and run.ratio.word == "faster"]
