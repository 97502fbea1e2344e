"""A training as sections: the verdicts, the curves, the confusions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from golow.report.page import blocks
from golow.report.page.blocks import Block
from golow.report.training import series
from golow.report.training.caption import conditions, machine
from golow.report.training.table import rows_of, table
from golow.training.record import Training

MOST_CLASSES = 20


def sections(found: Training, name: str) -> list[Block]:
    """name: prefix of the sections' anchors, unique in the page."""
    return [
        blocks.section(f"{name}-answer", "Answer", _answer(found)),
        blocks.section(f"{name}-curves", "Curves", _curves(found)),
        blocks.section(f"{name}-confusion", "Confusion", _confusions(found)),
    ]


def _answer(found: Training) -> Iterator[Block]:
    yield blocks.paragraph(_summary(found), style="lead")
    for verdict in found.verdicts:
        yield blocks.paragraph(f"{verdict.level}: {verdict.word}: {verdict.reason}")
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


def _curves(found: Training) -> Iterator[Block]:
    yield blocks.paragraph(
        "Lines are means over the seeds; bands reach from the lowest to the highest. Levels can be "
        "switched in the legend.",
        style="note",
    )
    for start in found.plan.initialisations:
        for over in ("epochs", "seconds"):
            across = "epoch" if over == "epochs" else "seconds of training"
            for title, curve in (
                ("Test accuracy", series.accuracy),
                ("Training loss", series.training_loss),
            ):
                bands = [(level, curve(found, level, start)) for level in found.plan.levels]
                lines = [_line(level, one, over) for level, one in bands if not one.empty]
                if lines:
                    what = f"{title}, weights {start}"
                    yield blocks.chart(what, across, title.lower(), lines, from_zero=False)


def _line(level: str, band: series.Band, over: str) -> Block:
    places = getattr(band, over)
    known = [
        (float(x), float(y), float(low), float(high))
        for x, y, low, high in zip(places, band.middle, band.low, band.high, strict=True)
        if all(map(math.isfinite, (x, y, low, high)))
    ]
    return blocks.line(level, [(x, y) for x, y, _, _ in known], [(x, a, b) for x, _, a, b in known])


def _confusions(found: Training) -> Iterator[Block]:
    """Of each level's best epoch."""
    classes = found.plan.dataset.classes
    shown = 0
    for level in found.plan.levels:
        best = series.best_run(series.runs_of(found, level))
        if best is None or not best[1].confusion or len(classes) > MOST_CLASSES:
            continue
        run, epoch = best
        shown += 1
        most = max((max(row) for row in epoch.confusion), default=0) or 1
        rows = [
            [blocks.cell(label), *(blocks.cell(str(n), n, heat=n / most) for n in row)]
            for label, row in zip(classes, epoch.confusion, strict=False)
        ]
        columns = [blocks.column("true class", number=False), *map(blocks.column, classes)]
        caption = f"{level}, seed {run.seed}, epoch {epoch.epoch}: samples by predicted class"
        yield blocks.table(caption, columns, rows)
    if not shown:
        yield blocks.paragraph(f"Not shown: no epoch has one, or over {MOST_CLASSES} classes.")
