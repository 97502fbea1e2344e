"""Surfaces over batch size and resolution, seen from above: colours and contours of time per
sample, memory or utilization, one panel per level, with a dot at each measured cell."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from golow.report.published import PublishedGrid
from golow.report.study.caption import captions
from golow.report.study.cells import NUMBER_SIZE, draw_signs, sign_handles
from golow.report.study.cuts import HOLLOW
from golow.report.study.maps import colour_bar, known, limits, middle, scale
from golow.report.study.measures import Measure
from golow.report.study.panels import Panel, level_panels
from golow.report.study.planes import Numbers, Plane, published_plane
from golow.report.study.rows import Outcome
from golow.report.style import caption, drawing, legend_of, say

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.cm import ScalarMappable
    from matplotlib.contour import QuadContourSet
    from matplotlib.figure import Figure

LEAST = 3  # places along either axis
DOT, HOLLOW_DOT = 2.0, 3.5  # points
SHADES = 128  # of a surface's colours, as smooth as the bar's
APART = (0.9, 0.45)  # cells between the middles of two labels
EDGE = 0.2  # cells from a label's middle to the outermost ones


def has_surface(plane: Plane) -> bool:
    """True if both axes are numeric, with enough values to interpolate between."""
    numeric = plane.is_numeric(plane.x) and plane.is_numeric(plane.y)
    return numeric and min(len(plane.xs), len(plane.ys)) >= LEAST


@drawing()
def surface(plane: Plane, measure: Measure, paper: PublishedGrid | None = None) -> Figure:
    """The measure over both axes; contour lines are interpolated between the cells."""
    under = published_plane(paper, plane)
    figure, panels = level_panels(plane, plane.levels, under, measure.name)
    values = [panel.plane.grid(panel.level, middle(measure)) for panel in panels]
    sure = [panel.plane.grid(panel.level, known(measure)) for panel in panels]
    low, high = limits(sure, measure)
    colours = scale("viridis", low, high, logarithmic=measure.base > 0)
    met: set[Outcome] = set()
    hollow = False
    for panel, grid, shown in zip(panels, values, sure, strict=True):
        met |= draw_signs(panel, grid)
        hollow |= _draw_dots(panel, grid, shown)
        _draw_contours(panel, shown, colours, measure)
    colour_bar(figure, panels, colours, measure)
    legend_of(figure, [*([_hollow_handle()] if hollow else []), *sign_handles(met)])
    what = f"{measure.title} over both axes"
    how = (
        f"{measure.title}: {measure.how(plane.rows)}; dots: measured cells, interpolated between "
        "them"
    )
    caption(figure, captions(plane, what, how, measure, paper if under else None))
    return figure


def _draw_dots(panel: Panel, values: Numbers, sure: Numbers) -> bool:
    """A dot at each measured cell, a hollow one if it has too few rounds; returns whether there are
    such."""
    y, x = np.nonzero(np.isfinite(sure))
    panel.axes.plot(x, y, ".", color="black", markersize=DOT)
    y, x = np.nonzero(np.isfinite(values) & np.isnan(sure))
    panel.axes.plot(x, y, "o", color="black", markersize=HOLLOW_DOT, markerfacecolor="none")
    return len(x) > 0


def _hollow_handle() -> Artist:
    from matplotlib.lines import Line2D

    dot = Line2D([], [], color="black", marker="o", markersize=HOLLOW_DOT, label=HOLLOW)
    dot.set(linestyle="none", markerfacecolor="none")
    return dot


def _draw_contours(panel: Panel, grid: Numbers, colours: ScalarMappable, measure: Measure) -> None:
    """Fill in the colours of the bar, with a line at each round value; draw nothing if fewer than
    two neighbours in each direction were measured."""
    if not np.isfinite(grid).any():
        say(panel.axes, "nothing was measured")
        return
    shown = np.ma.masked_invalid(grid)
    low, high = colours.get_clim()
    levels = _round_values(low, high, measure.base)
    steps = np.geomspace(low, high, SHADES) if measure.base else np.linspace(low, high, SHADES)
    with warnings.catch_warnings():  # a panel may be between two of the lines
        warnings.simplefilter("ignore", UserWarning)
        fill = panel.axes.contourf(
            shown, steps, norm=colours.norm, cmap=colours.get_cmap(), extend="both", zorder=0.5
        )
        fill.set_rasterized(True)  # hundreds of polygons would show their seams
        lines = panel.axes.contour(shown, levels, colors="white", linewidths=0.6, zorder=0.6)
        _label(panel, lines, measure)


def _label(panel: Panel, lines: QuadContourSet, measure: Measure) -> None:
    """Label the lines with their values, without overlaps, readable on any background: on a box,
    since a halo would turn the text of an SVG into shapes."""
    box = {"boxstyle": "square,pad=0.1", "facecolor": "#FFFFFFC0", "edgecolor": "none"}
    kept: list[tuple[float, float]] = []
    texts = panel.axes.clabel(
        lines, _labelled(list(lines.levels), measure.base), fmt=measure.text, inline=False
    )
    for text in texts:
        text.set(color="black", fontsize=NUMBER_SIZE, rotation=0, bbox=box)
        x, y = text.get_position()
        width, height = len(panel.plane.xs) - 1, len(panel.plane.ys) - 1
        inside = EDGE < x < width - EDGE and EDGE < y < height - EDGE
        apart = all(abs(x - a) > APART[0] or abs(y - b) > APART[1] for a, b in kept)
        text.set_visible(inside and apart)
        if text.get_visible():
            kept.append((x, y))


def _labelled(levels: Sequence[float], base: int) -> list[float]:
    """The lines' values that get a label: decades and every other power of 2, if there are enough
    of them."""
    if base == 10:
        few = [value for value in levels if math.log10(value) % 1 in (0.0, 1.0)]
    elif base == 2:
        few = [value for value in levels if math.log2(value) % 2 == 0]
    else:
        few = []
    return few if len(few) > 2 else list(levels)


def _round_values(low: float, high: float, base: int) -> list[float]:
    """The contours' values, from below low to above high: 1, 2, 5 of each decade, powers of 2, or
    quarters for a share."""
    if base == 10:
        decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
        found = [float(f"{step}e{decade}") for decade in decades for step in (1, 2, 5)]
    elif base == 2:
        found = [2.0**p for p in range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 2)]
    else:
        found = [0.0, 0.25, 0.5, 0.75, 1.0]
    first = max((number for number, value in enumerate(found) if value <= low), default=0)
    last = min(number for number, value in enumerate(found) if value >= high)
    return found[first : max(last, first + 1) + 1]
