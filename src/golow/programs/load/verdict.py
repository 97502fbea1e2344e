"""Conclusions from runs under load, and from the difference of two levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from golow.measure.stats import median_interval, ratio
from golow.measure.words import LEAST_ROUNDS
from golow.programs.load.early_stopping import Quoted, quoted, surely_over
from golow.programs.load.load_record import LoadPlan, LoadRun, Outcome, Timed
from golow.programs.load.loadgen_logs import Said
from golow.records.comparison import Quantity, Ratio, Word

MARGIN = 0.05
"""A difference of rates or latencies under load must exceed this to be called one: a search ends
within about 4%, and queues multiply what a machine's noise does to a single call."""

OVERLOAD = "requests came faster than answers; LoadGen ended the run"
Apart = Literal["faster", "slower", "same", "unclear"]


def outcome_of(said: Said, run: LoadRun, plan: LoadPlan) -> tuple[Outcome, str]:
    """The outcome of a run of the plan, and the reason. Only the server scenario has limits to
    hold."""
    if run.scenario != "server":
        return "measured", ""
    if said.overloaded:
        return "overload", OVERLOAD
    if not plan.limits:
        return "measured", ""
    if said.values.get("early_stopping_met") and said.values.get("result_perf_constraints_met"):
        return "held", ""
    for timed, limit in plan.limits.items():
        times = run.times(timed)
        over = sum(one > limit * 1e9 for one in times)
        if surely_over(over, len(times), plan.percentile):
            of = "" if timed == "latency" else f"{timed.upper()}: "
            return "over", f"{of}{over} of {len(times)} requests took longer"
    return "unclear", f"too few requests: {said.early_stopping}"


def told_apart(level: Quoted | None, baseline: Quoted | None) -> Apart:
    """State whether a level's percentile differs from the baseline's by more than `MARGIN`, by
    their 99% ends. ``same``: the values are within it, and the ends near each other."""
    if level is None or baseline is None or level.high is None or baseline.high is None:
        return "unclear"
    if level.low is None or baseline.low is None:
        return "unclear"
    if level.high < baseline.low * (1 - MARGIN):
        return "faster"
    if level.low > baseline.high * (1 + MARGIN):
        return "slower"
    alike = abs(level.value / baseline.value - 1) <= MARGIN
    near = max(level.high, baseline.high) <= min(level.low, baseline.low) * (1 + 4 * MARGIN)
    return "same" if alike and near else "unclear"


def pooled(runs: Sequence[LoadRun], share: float, timed: Timed = "latency") -> Quoted | None:
    """The percentile of a time of all requests of runs in turn; None if a run of them did not end,
    since its slowest requests have no latency."""
    if not runs or any(run.outcome in ("overload", "failed") for run in runs):
        return None
    return quoted([one for run in runs for one in run.times(timed)], share)


def apart_in_turn(
    level: Sequence[LoadRun], first: Sequence[LoadRun], share: float, timed: Timed = "latency"
) -> Apart:
    """Tell whether a percentile of a level's runs differs from the first level's, by all requests
    together. ``unclear`` if a round does not show the same, or is the only one: a machine that was
    slow during one run is not the level's difference."""
    if min(len(level), len(first)) < 2:
        return "unclear"
    word = told_apart(pooled(level, share, timed), pooled(first, share, timed))
    if word not in ("faster", "slower"):
        return word
    base = {run.round: run for run in first}
    for run in level:
        own = pooled([run], share, timed)
        other = pooled([base[run.round]], share, timed) if run.round in base else None
        if own is None or other is None:
            return "unclear"
        ratio = own.value / other.value
        if not (ratio < 1 - MARGIN if word == "faster" else ratio > 1 + MARGIN):
            return "unclear"
    return word


def together(runs: Sequence[LoadRun]) -> Outcome | None:
    """The outcome of runs in turn: what all of them show; ``unclear`` if they do not agree. None
    without runs."""
    found = {run.outcome for run in runs}
    for bad in ("failed", "overload"):
        if bad in found:
            return bad
    return next(iter(found)) if len(found) == 1 else "unclear" if found else None


def rate_of(rounds: Sequence[float], seed: int) -> Quantity:
    """The rate of several rounds: their median, with its interval."""
    low, high = median_interval(rounds, seed) or (None, None)
    value = sorted(rounds)[len(rounds) // 2]
    return Quantity(name="rate", unit="1/s", value=value, low=low, high=high)


def rate_ratio(level: Sequence[float], baseline: Sequence[float], seed: int) -> Ratio | None:
    """A level's highest rate over the baseline's, by rounds in turn. ``faster`` is a higher
    rate. None for rounds that do not belong together."""
    if len(level) != len(baseline):
        return None
    found = ratio(level, baseline, seed)
    if found is None:
        return None
    return msgspec.structs.replace(found, word=_word(found, len(level)))


def _word(found: Ratio, rounds: int) -> Word:
    if rounds < LEAST_ROUNDS:
        return "unclear"
    if found.low > 1 + MARGIN:
        return "faster"
    if found.high < 1 - MARGIN:
        return "slower"
    near = found.low >= 1 - 2 * MARGIN and found.high <= 1 + 2 * MARGIN
    return "same" if near else "unclear"
