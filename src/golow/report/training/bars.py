"""Time per sample by level, in training and evaluation, as bars with the range over runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from golow.programs.training.training_record import Training
from golow.report.style import CAPTION_SIZE, caption, drawing, look, new_figure
from golow.report.training.caption import captions
from golow.report.training.series import sample_spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
TITLES = {"train": "training", "eval": "evaluation"}
ROOM = 1.75  # length of the axis over the longest bar: leaves room for the numbers


@drawing()
def time_per_sample(training: Training) -> Figure:
    """Mean over the runs of each level, with a whisker from lowest to highest."""
    figure = new_figure(7.0, 0.26 * len(training.plan.levels) + 0.8)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_sample_times(left, training, "train")
    draw_sample_times(right, training, "eval")
    how = "Median over a run's epochs; bars: mean over seeds and initialisations; whiskers: lowest "
    how += "to highest."
    caption(figure, captions(training, "time per sample", how))
    return figure


def draw_sample_times(panel: Axes, training: Training, phase: Literal["train", "eval"]) -> None:
    """One bar per level, in the plan's order from the top, followed by its numbers."""
    levels = training.plan.levels
    spreads = {level: sample_spread(training, level, phase) for level in levels}
    longest = max((spread.high for spread in spreads.values() if spread), default=0.0)
    unit, size = next((u for u in UNITS if longest >= u[1]), UNITS[-1])
    for row, spread in enumerate(spreads.values()):
        if spread is None:
            panel.text(0, row, " none", verticalalignment="center", fontsize=CAPTION_SIZE)
            continue
        mean, low, high = (seconds / size for seconds in spread)
        colour = look(levels[row]).colour
        panel.barh(row, mean, height=0.62, color=colour)
        for edge, width in (("white", 2.6), ("#404040", 1.2)):
            panel.plot([low, high], [row, row], color=edge, linewidth=width, solid_capstyle="butt")
        text = _three_digits(mean)
        if high > low:
            text += f" ({_three_digits(low)}-{_three_digits(high)})"
        panel.annotate(
            text,
            (high, row),
            xytext=(5, 0),
            textcoords="offset points",
            verticalalignment="center",
            fontsize=CAPTION_SIZE,
        )
    panel.set_yticks(range(len(levels)), levels)
    panel.set_ylim(len(levels) - 0.4, -0.6)
    panel.set_xlim(0, ROOM * longest / size or 1.0)
    panel.set_xlabel(f"{TITLES[phase]}: time per sample ({unit})")
    panel.grid(axis="y", visible=False)


def _three_digits(number: float) -> str:
    return f"{number:#.3g}".rstrip(".")
