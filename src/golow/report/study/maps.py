"""Maps over two axes of a study, one panel per level and one square per cell with its number: the
ratio to eager, or a measured value. Cells that were not measured are marked with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from golow.report.published import PublishedGrid
from golow.report.study.border import draw_border
from golow.report.study.caption import captions
from golow.report.study.cells import (
    CROSSED,
    cells,
    draw_cells,
    hatch,
    hatch_handle,
    line_handle,
    sign_handles,
)
from golow.report.study.cuts import HOLLOW
from golow.report.study.measures import (
    RATIO,
    Measure,
    baselines_text,
    compared_levels,
    digits,
    ratio_text,
    wide,
)
from golow.report.study.panels import PUBLISHED_COLOUR, Panel, level_panels
from golow.report.study.planes import Numbers, Plane, published_plane
from golow.report.study.rows import Outcome, StudyRow
from golow.report.style import caption, drawing, legend_of

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

LEAST_SPAN = 1.25  # the colours of ratios span at least this, so that noise stays pale
BAR = 6.0  # a colour bar's length over its width, for each inch of the figure's height
BORDER, PUBLISHED_BORDER = 1.6, 3.2  # points; the paper's line is below golow's


@drawing()
def ratio_map(plane: Plane, paper: PublishedGrid | None = None) -> Figure:
    """Time relative to the baseline, one panel per level: blue is faster, a line is drawn where the
    level stops being faster, and cells whose word is unclear are hatched; crossed, without a
    colour, if they have too few rounds."""
    under = published_plane(paper, plane)
    figure, panels = level_panels(plane, compared_levels(plane), under, RATIO.name)
    values = [panel.plane.grid(panel.level, middle(RATIO)) for panel in panels]
    sure = [panel.plane.grid(panel.level, known(RATIO)) for panel in panels]
    colours = scale("RdBu_r", *limits(sure, RATIO), logarithmic=True)
    met: set[Outcome] = set()
    hatched = crossed = False
    for panel, grid in zip(panels, values, strict=True):
        few = _few(panel, RATIO)
        met |= draw_cells(panel, grid, colours, ratio_text, few)
        unclear = [at for at, row in cells(panel) if row.word == "unclear" and at not in few]
        hatched |= hatch(panel, unclear)
        crossed |= bool(few)
        if not _is_ordered(plane):
            continue
        if under and not panel.paper:
            sides = sides_of(under, panel.level)
            draw_border(panel.axes, sides, sides, PUBLISHED_COLOUR, PUBLISHED_BORDER)
        draw_border(panel.axes, sides_of(panel.plane, panel.level), grid, "black", BORDER)
    colour_bar(figure, panels, colours, RATIO)
    handles: list[Artist] = []
    if panels and _is_ordered(plane):
        handles.append(line_handle("where it stops being faster than eager", "black", BORDER))
    if paper and under:
        label = f"the same in {paper.where}"
        handles.append(line_handle(label, PUBLISHED_COLOUR, PUBLISHED_BORDER))
    if hatched:
        handles.append(hatch_handle("unclear"))
    if crossed:
        handles.append(hatch_handle(HOLLOW, CROSSED))
    legend_of(figure, [*handles, *sign_handles(met)])
    over = baselines_text(plane.rows)
    what, how = f"ratio of each level to {over}", f"ratio to {over}: {RATIO.how(plane.rows)}"
    caption(figure, captions(plane, what, how, RATIO, paper if under else None))
    return figure


@drawing()
def measure_map(plane: Plane, measure: Measure, paper: PublishedGrid | None = None) -> Figure:
    """Measured values, one panel per level, in one unit and on one colour scale."""
    under = published_plane(paper, plane)
    figure, panels = level_panels(plane, plane.levels, under, measure.name)
    values = [panel.plane.grid(panel.level, middle(measure)) for panel in panels]
    low, high = limits([panel.plane.grid(panel.level, known(measure)) for panel in panels], measure)
    unit, size = measure.unit(high)
    colours = scale("cividis", low, high, logarithmic=measure.base > 0)
    met: set[Outcome] = set()
    crossed = False
    for panel, grid in zip(panels, values, strict=True):
        few = _few(panel, measure)
        met |= draw_cells(panel, grid, colours, lambda value: digits(value / size, 2), few)
        crossed |= bool(few)
    colour_bar(figure, panels, colours, measure)
    handles = [hatch_handle(HOLLOW, CROSSED)] if crossed else []
    legend_of(figure, [*handles, *sign_handles(met)])
    what = f"{measure.title} in {unit.strip()}"
    how = f"{measure.title}: {measure.how(plane.rows)}"
    caption(figure, captions(plane, what, how, measure, paper if under else None))
    return figure


# ---------------------------------------------------------------- values and colours


def middle(measure: Measure) -> Callable[[StudyRow], float | None]:
    """The measure's value without its interval."""

    def value(row: StudyRow) -> float | None:
        found = measure.of(row)
        return found.middle if found else None

    return value


def known(measure: Measure) -> Callable[[StudyRow], float | None]:
    """The measure's value without its interval, unless it is from too few rounds for a colour."""
    of = middle(measure)
    return lambda row: None if measure.is_open(row) else of(row)


def limits(values: Iterable[Numbers], measure: Measure) -> tuple[float, float]:
    """The ends of the colour scale: the least and the most of all values; symmetric around 1 for
    ratios; 0 and 1 for shares."""
    found = np.concatenate([np.array([np.nan]), *(grid.ravel() for grid in values)])
    found = found[np.isfinite(found)]
    if measure is RATIO:
        span = float(max([LEAST_SPAN, *2 ** np.abs(np.log2(found))]))
        return 1 / span, span
    if not measure.base:
        return 0.0, 1.0
    return wide(float(found.min()), float(found.max())) if found.size else wide(1.0, 1.0)


def scale(name: str, low: float, high: float, logarithmic: bool = False) -> ScalarMappable:
    """matplotlib's colour map of that name from low to high."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LogNorm, Normalize

    return ScalarMappable((LogNorm if logarithmic else Normalize)(low, high), name)


def colour_bar(
    figure: Figure, panels: Sequence[Panel], colours: ScalarMappable, measure: Measure
) -> None:
    """The measure's colour bar beside the panels."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    if not panels:
        return
    bar = figure.colorbar(
        colours,
        ax=[panel.axes for panel in panels],
        aspect=BAR * figure.get_figheight(),
        label=measure.title,
    )
    axis = bar.ax.yaxis
    axis.set_major_locator(FixedLocator(measure.ticks(*colours.get_clim())))
    axis.set_minor_locator(FixedLocator([]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: measure.text(value)))
    bar.outline.set_visible(False)


def _is_ordered(plane: Plane) -> bool:
    """True if a line between cells means something: models and precisions have no order."""
    axes = (plane.x, plane.y)
    return all(plane.is_numeric(axis) or len(plane.places(axis)) == 1 for axis in axes)


def sides_of(plane: Plane, level: str) -> Numbers:
    """1 where the row's word is faster, -1 where it is slower or the same, NaN where it is unclear
    or there is none. The paper has no words: there any ratio below 1 is faster."""

    def value(row: StudyRow) -> float | None:
        ratio = RATIO.of(row)
        if ratio is None or row.word == "unclear":
            return None
        faster = row.word == "faster" if row.word else ratio.middle < 1
        return 1.0 if faster else -1.0

    return plane.grid(level, value)


def _few(panel: Panel, measure: Measure) -> list[tuple[int, int]]:
    """The cells whose value is from too few rounds."""
    return [at for at, row in cells(panel) if measure.is_open(row) and measure.of(row)]
