"""One panel per level, all over the same two axes, with the paper's panel below each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from golow.report.study.planes import LABELS, Plane, tick_text
from golow.report.style import CAPTION_SIZE, new_figure, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: the width of a row of panels, a cell if there is room, the smallest panel, the labels
# beside and below it, a colour bar with its labels, a title and a letter of it.
PAGE, CELL, LEAST = 7.8, (0.38, 0.26), (1.6, 1.1)
LABELS_ROOM, COLOUR_BAR, TITLE, TITLE_CHARACTER = (0.7, 0.5), 0.9, 0.3, 0.082
FEW = 5  # most places along an axis with labels of the usual size
PUBLISHED_COLOUR = "#606060"


class Panel(NamedTuple):
    """Where a level of a plane is drawn. paper: whether it shows the paper's figures. cell: inches
    of a cell along x."""

    axes: Axes
    plane: Plane
    level: str
    paper: bool
    cell: float


def level_panels(
    plane: Plane, levels: Sequence[str], under: Plane | None, measure: str
) -> tuple[Figure, list[Panel]]:
    """A figure with a panel for each level, up to three in a row, and below each row one with the
    paper's panels if the paper has any of them. Without levels it reports it. measure: named in
    each panel's title."""
    had = set(under.levels) & set(levels) if under else set()
    own = {level: f"{level}: {measure}" for level in levels}
    titles = {level: f"{own[level]}, 2020" if level in had else own[level] for level in levels}
    columns, width, height = _layout(plane, [*titles.values()])
    each = 2 if had else 1
    rows = each * math.ceil(max(1, len(levels)) / columns)
    figure = new_figure(
        columns * width + LABELS_ROOM[0] + COLOUR_BAR,
        rows * (height + TITLE) + LABELS_ROOM[1],
    )
    grid = figure.subplots(rows, columns, squeeze=False)
    found: dict[tuple[int, int], Panel] = {}
    for number, level in enumerate(levels):
        row, column = each * (number // columns), number % columns
        cell = width / len(plane.xs)
        found[row, column] = Panel(grid[row, column], plane, level, False, cell)
        if under and level in had:
            found[row + 1, column] = Panel(grid[row + 1, column], under, level, True, cell)
    for place, axes in np.ndenumerate(grid):
        axes.set_visible(place in found)
    for (row, column), panel in found.items():
        _mark(panel, (row, column - 1) not in found, (row + 1, column) not in found)
        panel.axes.set_title((titles if panel.paper else own)[panel.level])
        panel.axes.title.set_color(PUBLISHED_COLOUR if panel.paper else "black")
    if not found:
        grid[0, 0].set_visible(True)
        say(grid[0, 0], "nothing was measured")
    return figure, list(found.values())


def _layout(plane: Plane, titles: Sequence[str]) -> tuple[int, float, float]:
    """Panels per row, and a panel's width and height in inches: what the cells need, as long as
    the row fits the page, and at least what a title needs."""
    width, height = (
        max(least, cell * len(places))
        for least, cell, places in zip(LEAST, CELL, (plane.xs, plane.ys), strict=True)
    )
    longest = max((len(title) for title in titles), default=0)
    least = max(LEAST[0], TITLE_CHARACTER * longest)
    room = PAGE - LABELS_ROOM[0] - COLOUR_BAR
    columns = 2 if len(titles) == 4 else min(3, max(1, len(titles)))
    columns = max(1, min(columns, int(room / least)))
    return columns, max(least, min(width, room / columns)), height


def _mark(panel: Panel, left: bool, lowest: bool) -> None:
    """Each cell is a unit square around its number; the outer panels have the labels."""
    axes, plane = panel.axes, panel.plane
    for line, axis, outside in ((axes.xaxis, plane.x, lowest), (axes.yaxis, plane.y, left)):
        places = plane.places(axis)
        line.set_ticks(
            range(len(places)), [tick_text(axis, place) if outside else "" for place in places]
        )
        line.set_tick_params(labelsize=CAPTION_SIZE if len(places) > FEW else 8)
        line.set_label_text(LABELS[axis] if outside else "")
    if plane.x in ("precision", "model"):
        axes.tick_params(axis="x", rotation=30)
    axes.set(xlim=(-0.5, len(plane.xs) - 0.5), ylim=(-0.5, len(plane.ys) - 0.5))
    axes.grid(visible=False)
    if plane.y in ("precision", "model"):
        axes.invert_yaxis()  # names are read from the top
