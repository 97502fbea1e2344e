"""Lines over batch size, resolution, threads or ranks: time per sample, memory and utilization, one
line per level with its 95% interval as a band, one panel for each value of the plane's other axis.
Throughput over ranks also has the ideal line of each level."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from golow.measure.words import LEAST_ROUNDS
from golow.report.published import PublishedGrid
from golow.report.study.caption import captions
from golow.report.study.measures import MEASURES, THROUGHPUT, TIME, Measure, is_measured, wide
from golow.report.study.planes import (
    LABELS,
    Axis,
    Numbers,
    Place,
    Plane,
    place_text,
    published_plane,
)
from golow.report.study.rows import StudyRow
from golow.report.style import (
    caption,
    drawing,
    legend_of,
    level_handle,
    look,
    new_figure,
    panels,
    say,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ONE_PANEL, SMALL_PANEL, OVERVIEW_PANEL = (5.0, 3.0), (2.5, 2.0), (2.6, 2.1)  # inches
# Points, for the line and marker of the first level and of the last, as in a training run's curves.
LINES, MARKERS = (2.2, 1.0), (5.5, 3.0)
HOLLOW_MORE = 1.5  # points by which a hollow marker is larger, so that it looks hollow
MANY, SMALL_TICKS = 6, 6.5  # with more places than this along x, labels have the size below
PUBLISHED = {"linewidth": 0.8, "linestyle": (0, (5, 4)), "alpha": 0.65}
IDEAL = {"linewidth": 0.8, "linestyle": ":"}
IDEAL_LABEL = "as many times the fewest ranks"
PUBLISHED_AT = 32  # batch size and resolution at which the paper cuts its surfaces
BANDS = "bands: 95% intervals, where available"
HOLLOW = f"fewer than {LEAST_ROUNDS} rounds"


class Cut(NamedTuple):
    """A plane's rows over one axis, at one value of the other."""

    plane: Plane
    axis: Axis
    at: Place

    @property
    def other(self) -> Axis:
        """The other axis."""
        return self.plane.y if self.axis == self.plane.x else self.plane.x

    @property
    def title(self) -> str:
        """The value of the other axis."""
        return place_text(self.other, self.at)

    def rows(self, level: str) -> list[StudyRow | None]:
        """The level's rows in the order of the axis; None where it has none."""
        found = {
            getattr(row, self.axis): row
            for row in self.plane.rows
            if row.level == level and getattr(row, self.other) == self.at
        }
        return [found.get(place) for place in self.plane.places(self.axis)]

    def numbers(self, level: str, measure: Measure) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """The level's places along the axis, values and both ends of their intervals; NaN where it
        was not measured."""
        found = [measure.of(row) if row else None for row in self.rows(level)]
        numbers = np.array([value or (np.nan,) * 3 for value in found], np.float64)
        return (np.array(self.plane.places(self.axis), np.float64), *numbers.T)

    def is_open(self, level: str, measure: Measure) -> NDArray[np.bool_]:
        """Where along the axis too few rounds leave the level's value open."""
        return np.array([row is not None and measure.is_open(row) for row in self.rows(level)])

    def has(self, measure: Measure) -> bool:
        """True if any value is shown: of two rows at a place the last one is."""
        rows = (row for level in self.plane.levels for row in self.rows(level))
        return any(row is not None and measure.of(row) for row in rows)


@drawing()
def cuts(plane: Plane, measure: Measure, axis: Axis, paper: PublishedGrid | None = None) -> Figure:
    """The measure over that axis of the plane, a panel for each value of the other one."""
    other = Cut(plane, axis, None).other
    shown = [cut for at in plane.places(other) if (cut := Cut(plane, axis, at)).has(measure)]
    under = published_plane(paper, plane)
    size = SMALL_PANEL if len(shown) > 1 else ONE_PANEL
    figure, axes = panels(max(1, len(shown)), size, LABELS[axis], measure.title)
    for panel, cut in zip(axes, shown, strict=False):
        _draw(panel, cut, measure, under)
        panel.set_title(f"{measure.name}, {cut.title}")
    for panel in axes[: len(shown)]:
        _scales(panel, plane.places(axis), measure)
    if not shown:
        say(axes[0], "nothing was measured")
    _legend(figure, plane, [measure], paper if under else None, _has_ideal(axis, measure))
    what = f"{measure.title} over {_name(axis)}"
    how = f"{measure.title}: {measure.how(plane.rows)}; {BANDS}"
    caption(figure, captions(plane, what, how, measure, paper if under else None))
    return figure


@drawing()
def overview(plane: Plane, paper: PublishedGrid | None = None) -> Figure:
    """Measures over each numeric axis, at one value of the other: the paper's 32 if it was
    measured, else the middle one."""
    shown = [measure for measure in MEASURES if is_measured(plane, measure)]
    across = [middle_cut(plane, axis) for axis in (plane.x, plane.y) if plane.is_numeric(axis)]
    under = published_plane(paper, plane)
    rows, columns = max(1, len(across)), max(1, len(shown))
    figure = new_figure(columns * OVERVIEW_PANEL[0], rows * OVERVIEW_PANEL[1])
    grid = figure.subplots(rows, columns, squeeze=False)
    for line, cut in zip(grid, across, strict=False):
        for panel, measure in zip(line, shown, strict=False):
            if _draw(panel, cut, measure, under):
                _scales(panel, plane.places(cut.axis), measure)
            panel.set(xlabel=LABELS[cut.axis], ylabel=measure.title)
            panel.set_title(f"{measure.name}, {cut.title}")
    if not across or not shown:
        say(grid[0, 0], "nothing was measured over a numeric axis")
    _legend(figure, plane, shown, paper if under else None)
    axes = " and ".join(_name(cut.axis) for cut in across)
    what = f"{', '.join(measure.title for measure in shown)} over {axes}"
    how = "; ".join(f"{measure.title}: {measure.how(plane.rows)}" for measure in shown)
    told = captions(plane, what, f"{how}; {BANDS}", TIME, paper if under else None)
    caption(figure, told)
    return figure


# ---------------------------------------------------------------- drawing


def _draw(panel: Axes, cut: Cut, measure: Measure, under: Plane | None) -> bool:
    """One line per level, above the paper's; returns whether there are any."""
    if under is not None:
        for level in under.levels:
            x, middle, _, _ = Cut(under, cut.axis, cut.at).numbers(level, measure)
            panel.plot(x, middle, color=look(level).colour, **_published())
    if not cut.has(measure):
        say(panel, "nothing was measured")
        return False
    levels = cut.plane.levels
    for order, level in enumerate(levels):
        _draw_level(panel, cut, level, measure, order / max(1, len(levels) - 1))
    return True


def _draw_level(panel: Axes, cut: Cut, level: str, measure: Measure, order: float) -> None:
    """order: 0 for the level drawn first, below the others, and 1 for the last. Points of too few
    rounds are hollow, with neither line nor interval."""
    x, middle, low, high = cut.numbers(level, measure)
    is_open, style = cut.is_open(level, measure), look(level)
    if _has_ideal(cut.axis, measure) and (there := np.flatnonzero(np.isfinite(middle))).size:
        ranks = x[there[0] :]
        panel.plot(ranks, middle[there[0]] * ranks / ranks[0], color=style.colour, **_ideal())
    size = np.interp(order, (0, 1), MARKERS)
    hollow = {"color": style.colour, "marker": style.marker, **_hollow()}
    panel.plot(x[is_open], middle[is_open], markersize=size + HOLLOW_MORE, **hollow)
    middle, low, high = (np.where(is_open, np.nan, values) for values in (middle, low, high))
    panel.plot(
        x,
        middle,
        color=style.colour,
        marker=style.marker,
        linestyle=style.line,
        linewidth=np.interp(order, (0, 1), LINES),
        markersize=size,
    )
    panel.fill_between(x, low, high, color=style.colour, alpha=0.25, linewidth=0)
    there = np.isfinite(middle)  # a point without neighbours has no band
    panel.vlines(x[there], low[there], high[there], color=style.colour, linewidth=1)


def _scales(panel: Axes, places: Sequence[Place], measure: Measure) -> None:
    """Logarithmic axes except for shares; x has ticks at the cells' own values. Called when all
    panels that share an axis are drawn."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    panel.set_xscale("log", base=2)
    if measure.base:
        with warnings.catch_warnings():
            # Matplotlib states that it widens a range without extent: one value, a power of the
            # base but for rounding.
            warnings.filterwarnings("ignore", "Attempting to set identical", UserWarning)
            panel.set_yscale("log", base=measure.base)
        panel.set_ylim(*wide(*panel.get_ylim()))
    else:
        panel.set_ylim(-0.03, 1.03)
    ticks = [float(place or 0) for place in places], measure.ticks(*panel.get_ylim())
    for axis, at in zip((panel.xaxis, panel.yaxis), ticks, strict=True):
        axis.set_major_locator(FixedLocator(at))
        axis.set_minor_locator(FixedLocator([]))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: measure.text(value)))
    if len(places) > MANY:
        panel.tick_params(axis="x", labelsize=SMALL_TICKS)


def _legend(
    figure: Figure,
    plane: Plane,
    shown: Sequence[Measure],
    paper: PublishedGrid | None,
    ideal: bool = False,
) -> None:
    from matplotlib.lines import Line2D

    drawn = {row.level for row in plane.rows for measure in shown if measure.of(row)}
    handles = [level_handle(level) for level in plane.levels if level in drawn]
    if any(measure.is_open(row) for row in plane.rows for measure in shown if measure.of(row)):
        handles.append(Line2D([], [], color="#606060", marker="o", label=HOLLOW, **_hollow()))
    if ideal:
        handles.append(Line2D([], [], color="#606060", label=IDEAL_LABEL, **_ideal()))
    if paper is not None:
        label = f"the same in {paper.where}"
        handles.append(Line2D([], [], color="#606060", label=label, **_published()))
    legend_of(figure, handles)


def _has_ideal(axis: Axis, measure: Measure) -> bool:
    """True if a level's line has one beside it for ranks that never wait for one another."""
    return axis == "ranks" and measure is THROUGHPUT


def _hollow() -> dict[str, Any]:
    return {"linestyle": "none", "markerfacecolor": "white", "markeredgewidth": 0.9}


def _ideal() -> dict[str, Any]:
    return dict(IDEAL)


def _published() -> dict[str, Any]:
    return dict(PUBLISHED)


def _name(axis: Axis) -> str:
    return LABELS[axis].partition(" (")[0]


def middle_cut(plane: Plane, axis: Axis) -> Cut:
    """The cut at 32 if measured, else the middle one."""
    every = [Cut(plane, axis, at) for at in plane.places(Cut(plane, axis, None).other)]
    measured = [cut for cut in every if cut.has(TIME)] or every
    at_32 = [cut for cut in measured if cut.at == PUBLISHED_AT]
    return (at_32 or measured[(len(measured) - 1) // 2 :])[0]
