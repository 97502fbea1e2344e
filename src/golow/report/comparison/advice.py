"""Advice: which level to use for this workload, what it saves and what it costs."""

from __future__ import annotations

from typing import NamedTuple

from golow.compiled.callable_levels import IN_TORCH
from golow.levels import ladder
from golow.programs.comparison.recommended import faster, recommended, right, wrong_eager
from golow.records.comparison import Comparison, Run
from golow.report.comparison.busy import remedy
from golow.report.comparison.gpu import gpu_advice
from golow.report.comparison.untried import untried_advice
from golow.report.recipes import Recipe, lines_to_paste
from golow.report.units import count_text, seconds_text

_MODES = {"infer": "inference", "train": "training"}


def advice(comparison: Comparison) -> str:
    """Two or three sentences from the record alone; on a GPU also what slowed it down. If eager is
    wrong, the first one reports it."""
    wrong = wrong_eager(comparison)
    sentences = [_which_level(comparison)] if wrong is None else _instead_of(wrong, comparison)
    return " ".join([*sentences, *gpu_advice(comparison)])


MOST_OFFERS = 3


class Offer(NamedTuple):
    """Lines to paste, and what a sentence before them states; empty for the recommended level."""

    said: str
    recipe: Recipe


def offers(comparison: Comparison) -> list[Offer]:
    """The lines that give the recommended level in the reader's own program; none for eager, which
    needs no line. In training, then those of PyTorch's levels that are faster than eager too, which
    leave a training script as it is, each with what it was measured to save."""
    best, workload = recommended(comparison), comparison.workload
    if best is None:
        return []
    own = lines_to_paste(workload, best.level)
    found = [Offer("", own)] if own else []
    if workload.mode == "train":
        found += [
            Offer(said, recipe)
            for run in sorted(faster(comparison), key=lambda run: run.ratio.value)  # type: ignore[union-attr]
            if run is not best and run.level.partition(":")[0].partition("+")[0] in IN_TORCH
            if (said := _saved(run, comparison)) and (recipe := lines_to_paste(workload, run.level))
        ][:MOST_OFFERS]
    return found


def _baseline(comparison: Comparison) -> str:
    return ladder.baseline(comparison.workload.ranks)


def _saved(run: Run, comparison: Comparison) -> str:
    """Time that a level saves in a training script; empty without eager's time."""
    eager = next((one for one in comparison.runs if one.level == _baseline(comparison)), None)
    if run.ratio is None or eager is None or eager.time is None:
        return ""
    share = 1 - run.ratio.value
    saved, whole = seconds_text(share * eager.time.value), seconds_text(eager.time.value)
    return f"In a training script as it is, {run.level} saves {share:.0%}, {saved} of {whole}:"


def _instead_of(eager: Run, comparison: Comparison) -> list[str]:
    """Advice where eager is wrong: the fault, and a level that is right."""
    name = eager.level
    said = [f"{name[0].upper()}{name[1:]} itself is wrong: {eager.check.words}."]
    best, what = recommended(comparison), _MODES[comparison.workload.mode]
    if best is None:
        return [*said, "No other level passed the check and has enough rounds."]
    count = len(right(comparison))
    among = "the only correct level" if count == 1 else f"the fastest of {count} correct levels"
    return [
        *said,
        f"Use {best.level} for {what} at this size: it is {among}. Ratios are relative to {name}'s "
        f"time, although its results are wrong.",
    ]


def _which_level(comparison: Comparison) -> str:
    runs = {run.level: run for run in comparison.runs}
    name = _baseline(comparison)
    eager = runs.get(name)
    if eager is None or eager.time is None:
        return f"No advice: {name} was not timed, so there is nothing to compare with."
    proven = right(comparison)
    best, what = recommended(comparison), _MODES[comparison.workload.mode]
    if best is None:
        others = [run.level for run in proven]
        if not others:
            return f"No advice: {_why_none(comparison)}"
        unclear = [r.level for r in proven if r.ratio is not None and r.ratio.word == "unclear"]
        if unclear:
            return (
                f"No level is clearly faster than {name} for {what} at this size, but "
                f"{', '.join(unclear)} stayed unclear: {remedy(comparison)}"
            )
        verb = "is" if len(others) == 1 else "are"
        stay = f"Stay with {name} for {what} at this size: {', '.join(others)} {verb} not faster."
        return " ".join([stay, *untried_advice(comparison, proven)])
    cheaper = _cheaper(best, faster(comparison))
    return " ".join([_use(best, eager, what), *_costs(best), *cheaper])


def _why_none(comparison: Comparison) -> str:
    """Why no level has a ratio to eager, although eager has a time."""
    name = _baseline(comparison)
    others = [run for run in comparison.runs if run.level != name]
    matching = [run.level for run in others if run.check.verdict == "match" and run.time]
    if matching:
        verb = "has" if len(matching) == 1 else "have"
        return (
            f"{', '.join(matching)} passed the check but {verb} too few rounds to compare: "
            f"{remedy(comparison)}"
        )
    if not others:
        return f"{name} is the only level that ran."
    return f"no level other than {name} passed the check."


def _use(best: Run, eager: Run, what: str) -> str:
    assert best.ratio is not None and best.time is not None and eager.time is not None  # noqa: S101
    saved = eager.time.value * (1 - best.ratio.value)
    return (
        f"Use {best.level} for {what} at this size: it saves {1 - best.ratio.value:.0%} of "
        f"{eager.level}'s time, {seconds_text(saved)} of {seconds_text(eager.time.value)} per "
        "iteration."
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
