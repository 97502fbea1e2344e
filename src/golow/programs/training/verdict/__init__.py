"""Did a level train the same network as eager? Judged from the curves; see docs/use/training.md.

The first of these criteria that decides gives the verdict:

* the check of the first steps, if it states ``differs``; if it reports it of eager, no curve is
judged;
* the consumed data: the checksum of every epoch must equal eager's;
* the distance that rounding explains, step by step (``steps.py``): ``differs`` if the curve leaves
  eager's by more, ``same`` if it stays near eager's to the end;
* the spread over seeds (``seeds.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from golow.programs.training.training_record import CurveVerdict, TrainingRun
from golow.programs.training.verdict.pair import Judgement, Pair
from golow.programs.training.verdict.seeds import by_seeds
from golow.programs.training.verdict.steps import distance, left_by_more_than_rounding, stays_near
from golow.records.comparison import Quantity

__all__ = ["Pair", "curves", "verdicts"]


def verdicts(
    runs: Sequence[TrainingRun], roundings: Sequence[TrainingRun], baseline: str, epochs: int
) -> tuple[CurveVerdict, ...]:
    """One verdict per initialisation and level except the baseline, in the order of the runs.

    roundings: runs of the baseline from weights a few roundings away, at most one per
    initialisation. epochs: how many a complete run has.
    """
    groups = dict.fromkeys((run.initialisation, run.level) for run in runs)
    found = []
    for initialisation, level in groups:
        if level == baseline:
            continue
        twin = next((run for run in roundings if run.initialisation == initialisation), None)
        eager = _group(runs, initialisation, baseline)
        judged = _judged(_group(runs, initialisation, level), eager, twin, epochs)
        found.append(
            CurveVerdict(
                level=level,
                initialisation=initialisation,
                word=judged.word,
                reason=judged.reason,
                figures=judged.figures,
            )
        )
    return tuple(found)


def curves(pairs: Sequence[Pair], twin: TrainingRun | None, epochs: int) -> Judgement:
    """Verdict on a level from the curves alone.

    pairs: one per seed, each with at least one epoch. twin: eager from weights a few roundings
    away from the start of one of the seeds; None if there is no such run.
    """
    fault = _consumed_otherwise(pairs) or _not_finite(pairs)
    if fault is not None:
        return fault
    farthest = max(map(distance, pairs))
    figures = (Quantity(name="loss_distance", unit="", value=farthest),)
    if twin is not None and not pairs[0].level.workload.random_layers:
        for pair in pairs:
            reason = left_by_more_than_rounding(pair, twin) if pair.seed == twin.seed else ""
            if reason:
                return Judgement("differs", reason, figures)
    unfinished = [run for pair in pairs for run in pair if len(run.epochs) < epochs]
    if unfinished:
        reason = f"{unfinished[0].level} was not trained to the end: {_why_not(unfinished)}"
        return Judgement("unclear", reason, figures)
    if all(map(stays_near, pairs)):
        steps = sum(len(epoch.losses) for epoch in pairs[0].level.epochs)
        near = f"stay within {farthest:.1g} of eager's" if farthest else "equal eager's"
        return Judgement("same", f"its losses {near} for {steps} steps", figures)
    judged = by_seeds(pairs)
    return judged._replace(figures=figures + judged.figures)


# ---------------------------------------------------------------- how it is done


def _judged(
    runs: list[TrainingRun], eager: list[TrainingRun], twin: TrainingRun | None, epochs: int
) -> Judgement:
    check = runs[0].check
    if check.verdict == "differs":
        return Judgement("differs", f"in the first steps: {check.reason}")
    if eager and eager[0].check.verdict == "differs":
        return Judgement("unclear", f"eager itself is wrong: {eager[0].check.reason}")
    if not any(run.epochs for run in runs):
        return Judgement("unclear", f"it was not trained: {_why_not(runs)}")
    by_seed = {run.seed: run for run in eager}
    pairs = [Pair(run, by_seed[run.seed]) for run in runs if run.seed in by_seed]
    pairs = [pair for pair in pairs if pair.level.epochs and pair.eager.epochs]
    if not pairs:
        return Judgement("unclear", "eager has no curve to compare with")
    return curves(pairs, twin, epochs)


def _group(runs: Sequence[TrainingRun], initialisation: str, level: str) -> list[TrainingRun]:
    return [run for run in runs if (run.initialisation, run.level) == (initialisation, level)]


def _consumed_otherwise(pairs: Sequence[Pair]) -> Judgement | None:
    for pair in pairs:
        for one, other in zip(pair.level.epochs, pair.eager.epochs, strict=False):
            if one.checksum != other.checksum or len(one.losses) != len(other.losses):
                where = f"epoch {one.epoch} of seed {pair.seed}"
                reason = f"it consumed other samples, or the same in another order, in {where}"
                return Judgement("differs", reason)
    return None


def _not_finite(pairs: Sequence[Pair]) -> Judgement | None:
    for pair in pairs:
        if not pair.eager_is_finite:
            reason = f"eager's loss is not finite with seed {pair.seed}"
            return Judgement("unclear", reason)
        if not pair.level_is_finite:
            reason = f"its loss is not finite with seed {pair.seed}, but eager's is"
            return Judgement("differs", reason)
    return None


def _why_not(runs: Sequence[TrainingRun]) -> str:
    reasons = [run.failure or (run.check.reason if not run.epochs else "") for run in runs]
    return next((reason for reason in reasons if reason), "the run ended before this level")
