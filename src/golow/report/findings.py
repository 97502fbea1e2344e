"""Findings of records in a few words, for the list of a folder: `golow show runs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from golow.levels import ladder
from golow.report.units import rate_text, seconds_text, share_text

if TYPE_CHECKING:
    from golow.programs.auditing.audit_record import Audit
    from golow.programs.generation.generation_record import Generation
    from golow.programs.load.load_record import LoadTest
    from golow.programs.profiling.profile_record import Profile
    from golow.programs.quantization.quantization_record import Quantization
    from golow.programs.training.training_record import Training
    from golow.records.comparison import Comparison

NOTHING = "nothing was timed"


def of_comparison(found: Comparison) -> str:
    """Return the fastest matching level with its time over eager's, or why there is none."""
    baseline = ladder.baseline(found.workload.ranks)
    if not any(run.time for run in found.runs):
        return NOTHING
    faster = {
        run.level: run.ratio.value
        for run in found.runs
        if run.check.verdict == "match" and run.ratio is not None and run.ratio.word == "faster"
    }
    return _least(faster, baseline) or f"no level is clearly faster than {baseline}"


def of_audit(found: Audit) -> str:
    """Return the alternative that saves the largest share of its level's time."""
    from golow.report.audit.facts import faster

    ratios = {
        f"{level.level}+{price.alternative}": (level.level, price.effect.value)
        for level in found.levels
        for price in faster(level)
        if price.effect is not None
    }
    if not any(level.prices for level in found.levels):
        return NOTHING
    if not ratios:
        return "no alternative is clearly faster"
    name, (level, value) = min(ratios.items(), key=lambda item: item[1][1])
    return f"{name}, {value:.3f} of {level}"


def of_training(found: Training) -> str:
    """Return the highest accuracy and the level that reached it first."""
    reached = [
        (epoch.eval_accuracy, run.level)
        for run in found.runs
        for epoch in run.epochs
        if epoch.eval_accuracy is not None
    ]
    if not reached:
        return "nothing was trained"
    accuracy, level = max(reached, key=lambda pair: pair[0])
    return f"{level}, accuracy {100 * accuracy:.2f}%"


def of_load(found: LoadTest) -> str:
    """Return the highest rate of any level: within the limits of a search, or else the answers per
    second of a scenario, offline before others."""
    from golow.report.load.facts import rows
    from golow.report.load.table import limits_text

    held = {
        level.label: level.peak.rate.value
        for level in found.levels
        if level.peak is not None and level.peak.rate is not None
    }
    if held:
        return f"{_most(held)} requests/s, {limits_text(found.plan)}"
    for scenario in sorted(found.plan.scenarios, key=lambda name: name != "offline"):
        reached: dict[str, float] = {}
        for row in rows(found, scenario):
            if row.throughput:
                reached[row.level] = max(reached.get(row.level, 0.0), row.throughput)
        if reached:
            return f"{_most(reached)} answers/s, {scenario}"
    return NOTHING


def of_generation(found: Generation) -> str:
    """Return the level that generates the most tokens per second, at any batch size."""
    from golow.report.generation.facts import tokens_per_second

    rates = [(tokens_per_second(case, run), run.level) for case in found.cases for run in case.runs]
    timed = [(rate, level) for rate, level in rates if rate is not None]
    if not timed:
        return NOTHING
    rate, level = max(timed)
    return f"{level}, {rate_text(rate)} tokens/s"


def of_quantization(found: Quantization) -> str:
    """Return the accuracy before and after."""
    if found.accuracy is None:
        return ""
    before, after = (
        share_text(share.count / share.cases)
        for share in (found.accuracy.original, found.accuracy.quantized)
    )
    return f"accuracy {after}, {before} before"


def of_profiles(found: Sequence[Profile]) -> str:
    """Return the level with the shortest step, in any precision."""
    times = [
        (level.time.value, level.level)
        for profile in found
        for level in profile.levels
        if level.time is not None
    ]
    if not times:
        return NOTHING
    seconds, level = min(times)
    return f"{level}, {seconds_text(seconds)} a step"


FINDINGS: Mapping[str, Callable[[Any], str]] = {
    "comparison": of_comparison,
    "audit": of_audit,
    "training": of_training,
    "load": of_load,
    "generation": of_generation,
    "quantization": of_quantization,
    "profile": of_profiles,
}
"""Functions by the name of the record's kind."""


def _least(ratios: Mapping[str, float], baseline: str) -> str:
    if not ratios:
        return ""
    level = min(ratios, key=lambda name: ratios[name])
    return f"{level}, {ratios[level]:.3f} of {baseline}"


def _most(rates: Mapping[str, float]) -> str:
    level = max(rates, key=lambda name: rates[name])
    return f"{level}, {rate_text(rates[level])}"
