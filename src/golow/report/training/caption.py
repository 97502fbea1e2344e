"""The caption of a training run's figures: the conditions, the machine, and what is not shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from golow.programs.training.training_record import (
    CurveVerdict,
    Training,
    TrainingPlan,
    TrainingRun,
)
from golow.records.comparison import Environment
from golow.report.style import Caption
from golow.report.training.series import diverged, runs_of
from golow.report.units import batch_text

# The versions in a record that determine a level's arithmetic or speed.
ALWAYS, ON_CUDA, ON_CPU = (
    ("torch", "golow"),
    ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    ("onednn-cpu-gomp",),
)
MOST_NAMED = 6  # runs named in one sentence


def captions(training: Training, what: str, *how: str) -> Caption:
    """what: the figure shows, in a few words. how: it was measured, and how to read it."""
    plan = training.plan
    lines = [
        f"{plan.model} on {plan.dataset.name}: {what}",
        f"{machine(plan)} {plan.created[:10]}",
    ]
    if missing := " ".join(_remarks(training)):
        lines.append(missing)
    return Caption(lines, [*how, conditions(plan)])


def conditions(plan: TrainingPlan) -> str:
    """Data, batch, optimizer and seeds in two sentences."""
    data, optimizer = plan.dataset, plan.optimizer
    changed = [
        *(["flipped"] if plan.augmentation.flip else []),
        *([f"cropped by {plan.augmentation.padding}"] if plan.augmentation.padding else []),
    ]
    source = f" ({data.source})" if data.source else ""
    augmented = f", randomly {' and '.join(changed)}" if changed else ""
    warm_up = plan.schedule.warm_up_epochs
    epochs = "epoch" if warm_up == 1 else "epochs"
    warming = f" with {warm_up:g} warm-up {epochs}" if warm_up else ""
    seeds = f"{len(plan.seeds)} seeds" if len(plan.seeds) != 1 else "one seed"
    shape = "x".join(map(str, data.shape))
    samples = f"images of {shape}" if len(data.shape) == 3 else f"sequences of {shape} tokens"
    return (
        f"{data.train_samples:,} training and {data.test_samples:,} test {samples}{source}"
        f"{augmented}. {batch_text(plan.batch, plan.ranks).capitalize()}, {optimizer}, "
        f"learning rate {optimizer.learning_rate:g} ({plan.schedule.kind}{warming}), "
        f"precision {plan.precision}, {seeds}."
    )


def machine(plan: TrainingPlan) -> str:
    """CPU, GPU and versions in one sentence."""
    found = plan.environment
    threads = f"{plan.threads} thread{'s' if plan.threads != 1 else ''}"
    where = f"{found.cpu_model}, {threads}"
    if plan.device == "cuda":
        gpu = " or ".join(dict.fromkeys(found.gpu)) or "a GPU"
        where = f"{gpu}, driver {found.driver or '?'}; {where}"
    return f"{where}; {', '.join(_versions(found, plan))}."


def _versions(found: Environment, plan: TrainingPlan) -> list[str]:
    names = [*ALWAYS, *(ON_CUDA if plan.device == "cuda" else ON_CPU)]
    return [f"{name} {found.versions[name]}" for name in names if name in found.versions]


def _remarks(training: Training) -> Iterator[str]:
    """Remarks on a figure: levels that are missing, and marks that a reader could misread."""
    finished = [level for level in training.plan.levels if _has_epochs(training, level)]
    missing = [
        f"{level} ({_why(training, level)})"
        for level in training.plan.levels
        if level not in finished
    ]
    if missing:
        yield f"Not trained: {_some(missing)}."
    wrong = [
        _name(training, run)
        for run in training.runs
        if run.epochs and run.check.verdict == "differs"
    ]
    if wrong:
        yield f"Trained although the verdict of the check is differs: {_some(wrong)}."
    ended = [
        f"{_name(training, run)} after epoch {run.epochs[-1].epoch}"
        for run in training.runs
        if run.failure and run.epochs
    ]
    if ended:
        yield f"Failed: {_some(ended)}."
    apart = [
        f"{_name(training, run)} from epoch {first}"
        for run in training.runs
        if (first := diverged(run)) is not None
    ]
    if apart:
        yield f"Loss not finite, not shown: {_some(apart)}."
    judged = [
        f"{_name(training, verdict)} {verdict.word}"
        for verdict in training.verdicts
        if verdict.word != "same"
    ]
    if judged:
        yield f"Compared with eager's curves: {_some(judged)}."


def _name(training: Training, of: TrainingRun | CurveVerdict) -> str:
    """Level, initialisation if there are several, and seed if it is one run."""
    several = len(training.plan.initialisations) > 1
    seed = f" seed {of.seed}" if isinstance(of, TrainingRun) else ""
    return f"{of.level}{f' {of.initialisation}' if several else ''}{seed}"


def _has_epochs(training: Training, level: str) -> bool:
    return any(run.epochs for run in runs_of(training, level))


def _why(training: Training, level: str) -> str:
    for run in runs_of(training, level):
        if run.check.verdict != "match":
            return run.check.verdict
        if run.failure:
            return "failed"
    return "no epoch"


def _some(names: Sequence[str]) -> str:
    """The names, or the first ones and the number of the others."""
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
