"""The confusion matrix of a level's best epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golow.programs.training.training_record import Epoch, Training, TrainingRun
from golow.report.style import caption, drawing, new_figure, say
from golow.report.training.caption import captions
from golow.report.training.series import best_run, runs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COUNTS, MOST_NAMES = 20, 60  # most classes for which counts, and names, are readable
MOST_LETTERS = 24  # of a class's name
CELL, LETTER = 0.32, 0.065  # inches


def confusion(training: Training, level: str) -> Figure:
    """The matrix of the level's run and epoch with the highest test accuracy."""
    found = best_run(runs_of(training, level))
    if found is None:
        return _without_matrix(training, f"{level}: no epoch was evaluated")
    return run_confusion(training, *found)


@drawing()
def run_confusion(training: Training, run: TrainingRun, epoch: Epoch) -> Figure:
    """The matrix of this run's epoch: rows are true classes, columns predicted ones; each cell has
    the count, and its colour shows the share of the row."""
    matrix = np.asarray(epoch.confusion, np.float64)
    where = f"{run.level}, initialisation {run.initialisation}, seed {run.seed}"
    if matrix.ndim != 2 or not matrix.size:
        return _without_matrix(training, f"{where}: epoch {epoch.epoch} has no confusion matrix")
    classes, names = len(matrix), training.plan.dataset.classes
    names = tuple(_short(name) for name in names) if len(names) == classes <= MOST_NAMES else ()
    side = max(1.8, min(classes, MOST_NAMES) * (CELL if classes <= MOST_COUNTS else CELL / 2.4))
    beside = LETTER * max(map(len, names), default=3)
    figure = new_figure(max(4.5, side + beside + 1.6), side + beside + 0.6)
    panel = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = panel.imshow(100 * shares, cmap="Blues", vmin=0, vmax=100)
    bar = figure.colorbar(image, ax=panel, shrink=0.8)
    bar.set_label("share of the true class (%)")
    if classes <= MOST_COUNTS:
        _write_counts(panel, matrix, shares)
    if names:
        size, upright = 7 if classes <= MOST_COUNTS else 5, max(map(len, names)) > 2
        panel.set_xticks(range(classes), names, fontsize=size, rotation=90 if upright else 0)
        panel.set_yticks(range(classes), names, fontsize=size)
    panel.set(xlabel="predicted class", ylabel="true class")
    panel.grid(visible=False)
    rate = "" if epoch.eval_accuracy is None else f", test accuracy {epoch.eval_accuracy:.2%}"
    what = f"confusion matrix of {run.level}, epoch {epoch.epoch}{rate}"
    caption(figure, captions(training, what, f"{where}; numbers are test samples."))
    return figure


def _write_counts(panel: Axes, matrix: np.ndarray, shares: np.ndarray) -> None:
    for (row, column), count in np.ndenumerate(matrix):
        if count:
            dark = shares[row, column] > 0.55
            text = f"{count:.0f}"
            panel.text(
                column,
                row,
                text,
                color="white" if dark else "#202020",
                horizontalalignment="center",
                verticalalignment="center",
                fontsize=6.5 if len(text) < 4 else 5,
            )


def _short(name: str) -> str:
    return (
        name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    )


@drawing()
def _without_matrix(training: Training, reason: str) -> Figure:
    figure = new_figure(4.5, 2.4)
    say(figure.subplots(), reason)
    caption(figure, captions(training, "confusion matrix"))
    return figure
