"""A training run as sections: the verdicts, the curves, the confusions, the mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from golow.programs.training.training_record import (
    CurveVerdict,
    Epoch,
    Mistakes,
    Training,
    TrainingRun,
)
from golow.records.comparison import Quantity
from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.training import series
from golow.report.training.caption import conditions, machine
from golow.report.training.table import heading, rows_of, table
from golow.report.units import share_text

MOST_CLASSES, MOST_PAIRS = 20, 50
MEAN = "mean over seeds"
AXES = {
    "epochs": "epoch",
    "samples": "samples seen",
    "seconds": "seconds of training",
    "joules": "joules of the device",
}
"""The places of a curve's points, and what they are called."""


def title(found: Training) -> str:
    """Title of its page."""
    return heading(found)


def sections(found: Training, name: str) -> list[Block]:
    """name: prefix of the sections' anchors, unique in the page."""
    return [
        blocks.section(f"{name}-answer", "Answer", _answer(found)),
        blocks.section(f"{name}-curves", "Curves", _curves(found)),
        blocks.section(f"{name}-confusion", "Confusion", _confusions(found)),
        blocks.section(f"{name}-mistakes", "Mistakes", _mistakes(found)),
    ]


def _answer(found: Training) -> Iterator[Block]:
    yield blocks.paragraph(_summary(found), style="lead")
    if found.verdicts:
        yield _verdicts(found)
    yield blocks.table_of(table(found, list(rows_of(found))), "Every level, mean over its seeds")
    yield blocks.paragraph(f"{conditions(found.plan)}\n{machine(found.plan)}", style="note")
    for note in dict.fromkeys((*found.notes, *(n for run in found.runs for n in run.notes))):
        yield blocks.paragraph(f"note: {note}", style="note")


def _summary(found: Training) -> str:
    """How many levels trained the same network."""
    if not found.verdicts:
        return "There is no verdict: fewer than two levels finished an epoch."
    same = sum(verdict.word == "same" for verdict in found.verdicts)
    of = (
        f"{same} of {len(found.verdicts)} levels trained the same network as {found.plan.levels[0]}"
    )
    return f"{of}, by their curves."


def _verdicts(found: Training) -> Block:
    """Each verdict with the figures that it rests on; the ends of an interval stand below."""
    several = len(found.plan.initialisations) > 1
    names = list(dict.fromkeys(one.name for verdict in found.verdicts for one in verdict.figures))
    titles = ["level", *(["weights"] if several else []), "same network"]
    columns = [blocks.column(title, number=False) for title in titles]
    columns += [blocks.column(name.replace("_", " ")) for name in names]
    columns.append(blocks.column("why", number=False))

    def row(verdict: CurveVerdict) -> list[Block]:
        figures = {one.name: one for one in verdict.figures}
        start = [blocks.cell(verdict.initialisation)] if several else []
        return [
            blocks.cell(verdict.level, colour=blocks.level_colour(verdict.level)),
            *start,
            blocks.cell(verdict.word, word=verdict.word),
            *(_figure(figures.get(name)) for name in names),
            blocks.cell(verdict.reason),
        ]

    caption = f"Against {found.plan.levels[0]}, with the figures of each verdict"
    return blocks.table(caption, columns, map(row, found.verdicts))


def _figure(one: Quantity | None) -> Block:
    if one is None:
        return blocks.cell("-")
    ends = "" if one.low is None or one.high is None else f"\n{one.low:.3g} to {one.high:.3g}"
    return blocks.cell(f"{one.value:.3g}{ends}", one.value)


def _curves(found: Training) -> Iterator[Block]:
    yield blocks.paragraph(
        "Each curve is drawn over what you choose. Levels can be switched, and with several seeds "
        "each of them; means have bands from the lowest seed to the highest. Time and energy are "
        "those of training, without evaluation.",
        style="note",
    )
    if not any(run.epochs for run in found.runs):
        yield blocks.paragraph("No epoch was trained.")
    measures = {"Test accuracy": series.accuracy, "Training loss": series.training_loss}
    for start in found.plan.initialisations:
        made = (_curve(found, title, curve, start) for title, curve in measures.items())
        yield blocks.side_by_side(chart for chart in made if chart is not None)


Curve = Callable[[Training, str, str, int | None], series.Band]


def _curve(found: Training, title: str, curve: Curve, start: str) -> Block | None:
    """One line per level and seed; None if there is none."""
    bands = _bands(found, curve, start)
    axes = [axis for axis in AXES if any(np.isfinite(getattr(b, axis)).any() for *_, b in bands)]
    lines = [
        blocks.curve(
            level,
            group,
            [getattr(band, axis) for axis in axes],
            (band.middle, band.low, band.high),
        )
        for level, group, band in bands
    ]
    if not lines:
        return None
    shown = {group for _, group, _ in bands if group in ("", MEAN)}
    names = [AXES[axis] for axis in axes]
    what = f"{title}, weights {start}"
    return blocks.curves(what, names, title.lower(), lines, sorted(shown))


def _bands(found: Training, curve: Curve, start: str) -> list[tuple[str, str, series.Band]]:
    """Level, group and curve: the mean over the seeds, and each seed if there are several."""
    several = len(found.plan.seeds) > 1
    groups: list[tuple[str, int | None]] = [(MEAN if several else "", None)]
    groups += [(f"seed {seed}", seed) for seed in found.plan.seeds] if several else []
    made = [
        (level, group, curve(found, level, start, seed))
        for group, seed in groups
        for level in found.plan.levels
    ]
    return [(level, group, band) for level, group, band in made if not band.empty]


def _confusions(found: Training) -> Iterator[Block]:
    """Confusions in each level's best epoch: the matrix, or with many classes the most frequent
    ones."""
    made = []
    for level in found.plan.levels:
        best = series.best_run(series.runs_of(found, level))
        if best is not None and best[1].confusion:
            shown = _matrix if len(found.plan.dataset.classes) <= MOST_CLASSES else _most_confused
            made.append(shown(found, *best))
    if made:
        yield blocks.side_by_side(made)
    else:
        yield blocks.paragraph("Not shown: no epoch has a confusion matrix.")


def _matrix(found: Training, run: TrainingRun, epoch: Epoch) -> Block:
    most = max((max(row, default=0) for row in epoch.confusion), default=0) or 1
    classes = found.plan.dataset.classes
    rows = [
        [blocks.cell(label), *(blocks.cell(str(n), n, heat=n / most) for n in row)]
        for label, row in zip(classes, epoch.confusion, strict=False)
    ]
    columns = [blocks.column("true class", number=False), *map(blocks.column, classes)]
    caption = f"{run.level}, seed {run.seed}, epoch {epoch.epoch}: samples by predicted class"
    return blocks.table(caption, columns, rows)


def _most_confused(found: Training, run: TrainingRun, epoch: Epoch) -> Block:
    classes = found.plan.dataset.classes
    pairs = [
        (count, true, predicted, count / (sum(row) or 1))
        for true, row in zip(classes, epoch.confusion, strict=False)
        for predicted, count in zip(classes, row, strict=False)
        if count and true != predicted
    ]
    rows = [
        [
            blocks.cell(true),
            blocks.cell(predicted),
            blocks.cell(str(count), count),
            blocks.cell(share_text(share), share),
        ]
        for count, true, predicted, share in sorted(pairs, key=lambda pair: -pair[0])[:MOST_PAIRS]
    ]
    columns = [blocks.column(title, number=False) for title in ("true class", "taken for")]
    columns += [blocks.column("samples"), blocks.column("of the class")]
    caption = f"{run.level}, seed {run.seed}, epoch {epoch.epoch}: most frequent confusions"
    return blocks.table(caption, columns, rows)


def _mistakes(found: Training) -> Iterator[Block]:
    """Images that each level took for another class after its best epoch."""
    made = []
    for level in found.plan.levels:
        best = series.best_run(series.runs_of(found, level))
        if best is not None and best[0].mistakes is not None:
            made.append((level, _wrong_pictures(found, best[0], best[0].mistakes)))
    if made:
        yield blocks.choice("level", made)
    else:
        yield blocks.paragraph("Not shown: no level's record has misclassified images.")


def _wrong_pictures(found: Training, run: TrainingRun, mistakes: Mistakes) -> Block:
    classes = dict(enumerate(found.plan.dataset.classes))
    where = f"{run.level}, seed {run.seed}, epoch {mistakes.epoch}"
    many = f"{mistakes.count:,} of the test samples taken for another class"
    shown = len(mistakes.pictures)
    rest = f"; the {shown} with the highest confidence" if shown < mistakes.count else ""
    return blocks.pictures(
        f"{where}: {many}{rest}",
        (
            (
                one.shape,
                one.pixels,
                f"{classes.get(one.truth, one.truth)}\ntaken for "
                f"{classes.get(one.predicted, one.predicted)}, {share_text(one.probability)}\n"
                f"sample {one.sample}",
            )
            for one in mistakes.pictures
            if len(one.pixels) == math.prod(one.shape)
        ),
    )
