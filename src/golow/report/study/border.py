"""The line of a map between the cells where a level is faster than eager and those where it is
not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from golow.report.study.planes import Numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STEPS = 300  # after which the means of neighbours no longer change on grids of some tens of cells


def draw_border(axes: Axes, sides: Numbers, there: Numbers, colour: str, width: float) -> None:
    """Draw the line between the cells of two sides.

    sides: 1 or -1 for a cell on a side, NaN for one on neither. there: finite for the cells of the
    map. Between two neighbours of different sides the line crosses the middle of their border.
    Cells on neither side are on the line, or within one side if that is around them.
    """
    if not {1.0, -1.0} <= set(sides[np.isfinite(sides)]):
        return
    field = np.pad(between(sides, there), 1, mode="edge")  # the line ends at the edge of the map
    y, x = (np.arange(-1, count + 1) for count in sides.shape)
    lines = axes.contour(
        x, y, np.ma.masked_invalid(field), [0.0], colors=[colour], linewidths=width
    )
    lines.set_capstyle("round")
    lines.set_joinstyle("round")


def between(sides: Numbers, there: Numbers) -> Numbers:
    """The sides; in every other cell that is there, the mean of its neighbours, by repetition."""
    field = sides.copy()
    unknown = np.isnan(sides) & np.isfinite(there)
    for _ in range(STEPS):
        around = np.pad(field, 1, constant_values=np.nan)
        neighbours = np.stack(
            (around[:-2, 1:-1], around[2:, 1:-1], around[1:-1, :-2], around[1:-1, 2:])
        )
        known = np.isfinite(neighbours)
        with np.errstate(invalid="ignore"):  # a cell without a known neighbour stays unknown
            means = np.where(known, neighbours, 0.0).sum(axis=0) / known.sum(axis=0)
        field[unknown] = means[unknown]
    return field
