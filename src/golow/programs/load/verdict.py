"""Conclusions from runs under load, and from the difference of two levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from golow.measure.stats import median_interval, ratio
from golow.measure.words import LEAST_ROUNDS
from golow.programs.load.early_stopping import Quoted, quoted, surely_over
from golow.programs.load.load_record import LoadPlan, LoadRun, Outcome, Scenario
from golow.programs.load.loadgen_logs import Said
from golow.records.comparison import Quantity, Ratio, Word

MARGIN = 0.05
"""A difference of rates or latencies under load must exceed this to be called one: a search ends
within about 4%, and queues multiply what a machine's noise does to a single call."""

OVERLOAD = "requests came faster than answers; LoadGen ended the run"
Apart = Literal["faster", "slower", "same", "unclear"]


def outcome(
    said: Said, latencies: Sequence[int], latency: float, percentile: float
) -> tuple[Outcome, str]:
    """The outcome of a server run with a latency limit (seconds) at a percentile (a share), and the
    reason if the limit is not met."""
    over = sum(one > latency * 1e9 for one in latencies)
    held = said.values.get("early_stopping_met") and said.values.get("result_perf_constraints_met")
    if said.overloaded:
        return "overload", OVERLOAD
    if held:
        return "held", ""
    if surely_over(over, len(latencies), percentile):
        return "over", f"{over} of {len(latencies)} requests took longer"
    return "unclear", f"too few requests: {said.early_stopping}"


def outcome_of(
    scenario: Scenario, said: Said, latencies: Sequence[int], plan: LoadPlan
) -> tuple[Outcome, str]:
    """The outcome of a run of the plan, and the reason. Only the server scenario has a latency to
    hold."""
    if scenario != "server":
        return "measured", ""
    if plan.latency is not None:
        return outcome(said, latencies, plan.latency, plan.percentile)
    if said.overloaded:
        return "overload", OVERLOAD
    return "measured", ""


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


def pooled(runs: Sequence[LoadRun], share: float) -> Quoted | None:
    """The percentile of all requests of runs in turn; None if a run of them did not end, since its
    slowest requests have no latency."""
    if not runs or any(run.outcome in ("overload", "failed") for run in runs):
        return None
    return quoted([one for run in runs for one in run.latencies], share)


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
