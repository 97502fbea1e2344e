"""How much the ranks of a training run differ, in words."""

from __future__ import annotations

from statistics import median

from golow.programs.comparison.figures import used_blocks
from golow.records.comparison import Comparison, Run


def ranks_text(comparison: Comparison) -> str:
    """Say which rank the times are of, and by how much the slowest's is above the fastest's."""
    text = "times are those of the slowest rank; throughput and resident memory are totals"
    found = {run.level: spread for run in comparison.runs if (spread := spread_of(run)) is not None}
    if not found:
        return text
    level = max(found, key=lambda name: found[name])
    return f"{text}; ranks differ by at most {found[level]:.1%} ({level})"


def spread_of(run: Run) -> float | None:
    """Share by which the median of the slowest rank's iterations is above the fastest's; None
    without times by rank."""
    by_rank = zip(*(block.rank_ns for block in used_blocks(run) if block.rank_ns), strict=True)
    medians = [median(ns for block in rank for ns in block) for rank in by_rank]
    return max(medians) / min(medians) - 1 if medians and min(medians) > 0 else None
