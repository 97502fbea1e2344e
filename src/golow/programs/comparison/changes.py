"""Two comparisons of one workload: how each level's time changed, and whether a gate closes."""

from __future__ import annotations

from collections.abc import Sequence

from golow.programs.comparison.figures import round_figures
from golow.records.comparison import Comparison, Quantity, Ratio, VerdictName
from golow.records.errors import GolowError
from golow.records.record import Record

LEAST_LIMIT = 0.01
"""Two processes of the same program differ by up to about a percent, so no gate is narrower."""


class Change(Record, frozen=True, kw_only=True):
    """One level in both comparisons.

    before, after: seconds of an iteration; None where it was not timed. ratio: after over before.
    verdict: of the check, after. memory: bytes in use, before and after.
    """

    level: str
    verdict: VerdictName
    before: Quantity | None
    after: Quantity | None
    ratio: Ratio | None
    memory: tuple[float | None, float | None]


class Changes(Record, frozen=True, kw_only=True):
    """Changes between two comparisons, and the levels that only one of them has."""

    levels: tuple[Change, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


def changes(before: Comparison, after: Comparison) -> Changes:
    """How each level changed from the first comparison to the second."""
    from golow.measure.stats import change

    earlier = {run.level: run for run in before.runs}
    later = {run.level: run for run in after.runs}
    found = []
    for level, run in later.items():
        if level not in earlier:
            continue
        was = earlier[level]
        timed = run.time is not None and was.time is not None
        figures = round_figures(run), round_figures(was)
        memory = "device_used" if run.quantity("device_used") is not None else "resident"
        found.append(
            Change(
                level=level,
                verdict=run.check.verdict,
                before=was.time,
                after=run.time,
                ratio=change(*figures, after.race.seed) if timed else None,
                memory=(was.quantity(memory), run.quantity(memory)),
            )
        )
    return Changes(
        levels=tuple(found),
        only_before=tuple(level for level in earlier if level not in later),
        only_after=tuple(level for level in later if level not in earlier),
    )


def slower_than(found: Changes, limit: float) -> Sequence[Change]:
    """The levels that are slower by more than this share with confidence: the whole 95% interval
    is beyond it, in enough rounds. What is unclear is not among them."""
    return [
        one
        for one in found.levels
        if one.ratio is not None and one.ratio.word == "slower" and one.ratio.low > 1 + limit
    ]


def parsed_limit(text: str) -> float:
    """The share that ``5%`` or ``0.05`` stands for. Raises `GolowError` for anything else."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = float("nan")
    if not LEAST_LIMIT <= share <= 100:
        raise GolowError(
            f"--fail-above {text} is not a share of at least {LEAST_LIMIT:.0%}",
            "write it as --fail-above 5%; equal programs differ by up to 1%.",
        )
    return share
