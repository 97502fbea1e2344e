"""Advice: which level to use for this workload, what it saves and what it costs."""

from __future__ import annotations

from golow.compiled import callable_levels
from golow.programs.comparison.recommended import faster, recommended, right, wrong_eager
from golow.records.comparison import Comparison, Run
from golow.report.comparison.gpu import gpu_advice
from golow.report.comparison.untried import untried_advice
from golow.report.units import count_text, seconds_text

_MODES = {"infer": "inference", "train": "training"}


def advice(comparison: Comparison) -> str:
    """Two or three sentences from the record alone; on a GPU also what slowed it down. If eager is
    wrong, the first one reports it."""
    wrong = wrong_eager(comparison)
    sentences = [_which_level(comparison)] if wrong is None else _instead_of(wrong, comparison)
    return " ".join([*sentences, *gpu_advice(comparison)])


def line_to_paste(comparison: Comparison) -> str:
    """The line that gives the recommended level in the reader's own program; empty where there is
    none: for eager, which needs no line, and a level that is not handed over."""
    best = recommended(comparison)
    return "" if best is None else callable_levels.line_to_paste(comparison.workload, best.level)


def _instead_of(eager: Run, comparison: Comparison) -> list[str]:
    """Advice where eager is wrong: the fault, and a level that is right."""
    said = [f"Eager itself is wrong: {eager.check.words}."]
    best, what = recommended(comparison), _MODES[comparison.workload.mode]
    if best is None:
        return [*said, "No other level passed the check and has enough rounds."]
    count = len(right(comparison))
    among = "the only level that is right" if count == 1 else f"the fastest of {count} right levels"
    return [
        *said,
        f"Use {best.level} for {what} at this size: it is {among}. Ratios are relative to eager's "
        f"time, although its results are wrong.",
    ]


def _which_level(comparison: Comparison) -> str:
    runs = {run.level: run for run in comparison.runs}
    eager = runs.get("eager")
    if eager is None or eager.time is None:
        return "No advice: eager was not timed, so there is nothing to compare with."
    proven = right(comparison)
    best, what = recommended(comparison), _MODES[comparison.workload.mode]
    if best is None:
        others = [run.level for run in proven]
        if not others:
            return "No advice: no level other than eager passed the check and has enough rounds."
        unclear = [r.level for r in proven if r.ratio is not None and r.ratio.word == "unclear"]
        if unclear:
            return (
                f"No level is clearly faster than eager for {what} at this size, but "
                f"{', '.join(unclear)} stayed unclear: allow a longer time limit."
            )
        verb = "is" if len(others) == 1 else "are"
        stay = f"Stay with eager for {what} at this size: {', '.join(others)} {verb} not faster."
        return " ".join([stay, *untried_advice(comparison, proven)])
    cheaper = _cheaper(best, faster(comparison))
    return " ".join([_use(best, eager, what), *_costs(best), *cheaper])


def _use(best: Run, eager: Run, what: str) -> str:
    assert best.ratio is not None and best.time is not None and eager.time is not None  # noqa: S101
    saved = eager.time.value * (1 - best.ratio.value)
    return (
        f"Use {best.level} for {what} at this size: it saves {1 - best.ratio.value:.0%} of eager's "
        f"time, {seconds_text(saved)} of {seconds_text(eager.time.value)} per iteration."
    )


def _costs(best: Run) -> list[str]:
    build, ready = best.quantity("build") or 0.0, best.quantity("ready")
    costs = [f"{seconds_text(build)} to build once"] if build >= 0.01 else []
    costs.append(f"{seconds_text(ready)} from process start to ready")
    text = f"It costs {' and '.join(costs)}"
    if best.payback_iterations:
        text += f", which pays off after {count_text(best.payback_iterations)} iterations"
    return [text + "."]


def _cheaper(best: Run, faster: list[Run]) -> list[str]:
    """The level that pays off first, if it is another one and the difference matters."""
    first = min(faster, key=lambda run: run.payback_iterations or 0.0)
    soon, late = first.payback_iterations or 0.0, best.payback_iterations or 0.0
    if first.level == best.level or first.ratio is None or soon > 0.5 * late:
        return []
    return [
        f"For fewer iterations than that, {first.level} ({1 - first.ratio.value:.0%} saved) pays "
        f"off {'at once' if soon < 1 else f'after {count_text(soon)}'}."
    ]
