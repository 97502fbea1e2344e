"""The figures of a training run, from its records alone; `write_figures` writes all of them.

This file has the curves: accuracy and loss over epochs and over training time, one line per level
and one panel per initialisation. If a record has nothing to draw, the figure reports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golow.programs.training.training_record import Training
from golow.report.published import Published, accuracies, levental2020
from golow.report.style import (
    CAPTION_SIZE,
    Format,
    Look,
    caption,
    drawing,
    legend,
    look,
    new_figure,
    panels,
    save_figure,
    say,
)
from golow.report.training import series
from golow.report.training.bars import draw_sample_times, time_per_sample
from golow.report.training.caption import captions
from golow.report.training.confusion import confusion
from golow.report.training.series import Band, Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_PANEL, SMALL_PANEL = (6.0, 3.2), (2.5, 2.2)  # inches
# Points, for the line and marker of the first level and of the last: where levels agree their
# lines coincide, and all of them stay visible.
LINES, MARKERS = (2.2, 1.0), (5.5, 3.0)
MARKED = 10  # points of a line that get a marker
LOG_FROM = 50  # the axis is logarithmic from this ratio of the largest loss to the smallest

ACCURACY = "test accuracy (%)"
OVER_TIME = "Over training time: evaluation not counted, mean over seeds."
OVER_SEEDS = "Lines: mean over seeds; bands: lowest to highest."
TIME_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


@drawing()
def write_figures(
    training: Training,
    folder: Path,
    formats: Sequence[Format] = ("svg", "png"),
    reference: bool = True,
) -> list[Path]:
    """Write every figure of the training run into the folder; returns the files.

    Equal records give equal files. reference: draw the paper's accuracies if it has any for the
    data set. Raises `GolowError` without matplotlib, or when the folder cannot be written.
    """
    figures = {
        "accuracy-over-epochs": accuracy_over_epochs(training, reference),
        "accuracy-over-time": accuracy_over_time(training, reference),
        "loss-over-epochs": loss_over_epochs(training),
        "loss-over-time": loss_over_time(training),
        "time-per-sample": time_per_sample(training),
        "overview": overview(training),
    }
    figures |= {
        f"confusion-{level}": confusion(training, level)
        for level in training.plan.levels
        if series.best_run(series.runs_of(training, level)) is not None
    }
    return [
        file
        for name, figure in figures.items()
        for file in save_figure(figure, folder, name, formats)
    ]


# ---------------------------------------------------------------- the figures


@drawing()
def accuracy_over_epochs(training: Training, reference: bool = True) -> Figure:
    """Test accuracy after each epoch."""
    return _accuracy_figure(training, EPOCHS, "", reference)


@drawing()
def accuracy_over_time(training: Training, reference: bool = True) -> Figure:
    """Test accuracy after each epoch, over training time."""
    return _accuracy_figure(training, _time(training), OVER_TIME, reference)


@drawing()
def loss_over_epochs(training: Training) -> Figure:
    """Training loss over epochs."""
    return _loss_figure(training, EPOCHS, "")


@drawing()
def loss_over_time(training: Training) -> Figure:
    """Training loss over training time."""
    return _loss_figure(training, _time(training), OVER_TIME)


@drawing()
def overview(training: Training) -> Figure:
    """For a first page: accuracy over time for the first initialisation, and training time per
    sample."""
    figure = new_figure(7.0, 3.2)
    left, right = figure.subplots(1, 2)
    first, axis = training.plan.initialisations[0], _time(training)
    shown = _draw_curves(left, training, first, _accuracy, axis)
    _scale([left], axis, shown)
    left.set(xlabel=axis.label, ylabel=ACCURACY)
    draw_sample_times(right, training, "train")
    legend(figure, shown)
    what = f"test accuracy (initialisation {first}) and training time per sample"
    caption(figure, captions(training, what, OVER_SEEDS))
    return figure


def _accuracy_figure(training: Training, axis: Axis, over: str, reference: bool) -> Figure:
    paper = levental2020()
    lines = accuracies(paper, training.plan.dataset.name) if reference else {}
    figure, axes = _curves(training, axis, _accuracy, ACCURACY)
    source = f"Thin dashed lines: {paper.model} after {paper.epochs} epochs, {paper.source}."
    how = [*([over] if over else []), OVER_SEEDS, *([source] if lines else [])]
    caption(figure, captions(training, "test accuracy after each epoch", *how))
    if lines:
        _draw_reference(figure, axes, paper, lines)
    return figure


def _accuracy(training: Training, level: str, initialisation: str) -> Band:
    """In percent."""
    band = series.accuracy(training, level, initialisation)
    return band._replace(middle=100 * band.middle, low=100 * band.low, high=100 * band.high)


def _loss_figure(training: Training, axis: Axis, over: str) -> Figure:
    figure, axes = _curves(training, axis, series.training_loss, "training loss")
    _logarithmic_where_wide(axes)
    steps = max((len(epoch.losses) for run in training.runs for epoch in run.epochs), default=0)
    each = math.ceil(steps / series.loss_pieces(training))
    how = [*([over] if over else []), OVER_SEEDS]
    how += [f"Each point is the mean of {each} steps."] if each > 1 else []
    caption(figure, captions(training, "training loss", *how))
    return figure


# ---------------------------------------------------------------- along x


class Axis(NamedTuple):
    """The x axis: its label, the places of a curve's points, whether ticks are whole numbers."""

    label: str
    places: Callable[[Band], Numbers]
    whole: bool = False


EPOCHS = Axis("epoch", lambda band: band.epochs, whole=True)


def _time(training: Training) -> Axis:
    """Training time in the largest unit of which the longest run has at least two."""
    longest = max((sum(e.train_seconds for e in run.epochs) for run in training.runs), default=0.0)
    unit, size = next((u for u in TIME_UNITS if longest >= 2 * u[1]), TIME_UNITS[-1])
    return Axis(f"training time ({unit})", lambda band: band.seconds / size)


# ---------------------------------------------------------------- drawing

Curve = Callable[[Training, str, str], Band]  # of a level and an initialisation


def _curves(training: Training, axis: Axis, curve: Curve, label: str) -> tuple[Figure, list[Axes]]:
    """One panel per initialisation; the legend above has the levels that any panel shows."""
    initialisations = training.plan.initialisations
    several = len(initialisations) > 1
    size = SMALL_PANEL if several else ONE_PANEL
    figure, axes = panels(len(initialisations), size, axis.label, label)
    shown: set[str] = set()
    for panel, initialisation in zip(axes, initialisations, strict=True):
        shown |= set(_draw_curves(panel, training, initialisation, curve, axis))
        if several:
            panel.set_title(initialisation)
    _scale(axes, axis, shown)
    legend(figure, [level for level in training.plan.levels if level in shown])
    return figure, axes


def _draw_curves(
    panel: Axes, training: Training, initialisation: str, curve: Curve, axis: Axis
) -> list[str]:
    """One band per level; returns the levels that have one."""
    bands = {level: curve(training, level, initialisation) for level in training.plan.levels}
    drawn = {level: band for level, band in bands.items() if not band.empty}
    for order, (level, band) in enumerate(drawn.items()):
        _draw_band(panel, look(level), axis.places(band), band, order / max(1, len(drawn) - 1))
    if not drawn:
        say(panel, "nothing was recorded")
    return list(drawn)


def _scale(axes: Sequence[Axes], axis: Axis, shown: Collection[str]) -> None:
    """Limits and ticks of x, shared by all panels; called when the longest curve is drawn."""
    from matplotlib.ticker import MaxNLocator

    if shown:
        axes[0].set_xlim(left=0)
        # A fixed number: the layout makes room for the labels before the width is known.
        columns = axes[0].get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
        axes[0].xaxis.set_major_locator(MaxNLocator(8 if columns == 1 else 4, integer=axis.whole))
    else:
        axes[0].set(xticks=[], yticks=[])


def _draw_band(panel: Axes, style: Look, x: Numbers, band: Band, order: float) -> None:
    """order: 0 for the level drawn first, below the others, and 1 for the last."""
    every = max(1, len(x) // MARKED)
    panel.plot(
        x,
        band.middle,
        color=style.colour,
        marker=style.marker,
        linestyle=style.line,
        linewidth=np.interp(order, (0, 1), LINES),
        markersize=np.interp(order, (0, 1), MARKERS),
        markevery=(int(order * (every - 1)), every),
    )
    panel.fill_between(x, band.low, band.high, color=style.colour, alpha=0.18, linewidth=0)
    alone = _alone(band.middle)
    if alone.any():  # a point without neighbours has no line and no band
        panel.plot(x[alone], band.middle[alone], style.marker, color=style.colour)
        panel.vlines(x[alone], band.low[alone], band.high[alone], color=style.colour, linewidth=1)


def _alone(values: Numbers) -> NDArray[np.bool_]:
    """Which points are numbers whose neighbours are not."""
    there: NDArray[np.bool_] = np.pad(np.isfinite(values), 1)
    before, after = there[:-2], there[2:]
    return there[1:-1] & ~before & ~after


def _logarithmic_where_wide(axes: Sequence[Axes]) -> None:
    """A logarithmic y axis if the curves' ends would be at the bottom of a linear one."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    lines = [np.asarray(line.get_ydata(), np.float64) for panel in axes for line in panel.lines]
    values = np.concatenate([*lines, [np.nan]])
    values = values[np.isfinite(values)]
    if not values.size or values.min() <= 0 or values.max() < LOG_FROM * values.min():
        return
    digits = (1, 2, 5) if values.max() < 1000 * values.min() else (1,)
    for panel in axes:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=digits))
        panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        panel.yaxis.set_minor_formatter(NullFormatter())


def _draw_reference(
    figure: Figure, axes: Sequence[Axes], paper: Published, values: Mapping[str, float]
) -> None:
    """Thin dashed lines at the paper's values, labelled right of the last column's panels."""
    colours = {name: look(paper.levels[name]).colour for name in values}
    for panel in axes:
        for name, value in values.items():
            panel.axhline(value, color=colours[name], linewidth=0.7, dashes=(4, 4), zorder=1)
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(low, high)
    figure.draw_without_rendering()  # to know the panels' height, which the labels do not change
    inches = axes[0].get_window_extent().height / figure.dpi
    places = _apart(values, 1.3 * CAPTION_SIZE / 72 / inches * (high - low))
    for panel in axes:
        if not panel.get_subplotspec().is_last_col():  # type: ignore[union-attr]
            continue
        along = panel.get_yaxis_transform()
        for name, place in places.items():
            panel.annotate(
                f"{name} {values[name]:.1f}",
                xy=(1.0, values[name]),
                xytext=(1.04, place),
                xycoords=along,
                textcoords=along,
                color=colours[name],
                fontsize=CAPTION_SIZE,
                verticalalignment="center",
                arrowprops={"arrowstyle": "-", "color": colours[name], "linewidth": 0.5},
                annotation_clip=False,
            )


def _apart(values: Mapping[str, float], least: float) -> dict[str, float]:
    """Positions of the values' labels so that none overlap, upwards from the lowest."""
    places: dict[str, float] = {}
    below = -math.inf
    for name in sorted(values, key=lambda name: values[name]):
        below = places[name] = max(values[name], below + least)
    return places
