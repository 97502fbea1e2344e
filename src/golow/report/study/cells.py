"""The cells of a map: a square with its number, or a grey one with the reason for having none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from golow.report.study.panels import Panel
from golow.report.study.planes import Numbers
from golow.report.study.rows import SIGNS, Outcome, StudyRow

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.cm import ScalarMappable

# The grey of a cell without a number.
GREYS: dict[Outcome, str] = {
    "out of memory": "#404040",
    "skipped": "#808080",
    "failed": "#B4B4B4",
    "differs": "#B4B4B4",
    "unavailable": "#E2E2E2",
    "not reached": "#E2E2E2",
    "measured": "#E2E2E2",
}
MEANINGS = {"measured": "measured, but without this value", "differs": "its numbers differ"}
NUMBER_SIZE, LEAST_CELL = 5.8, 0.2  # points of a number; inches of a cell that has room for it
HATCHED: dict[str, Any] = {
    "facecolor": "none",
    "edgecolor": "#00000040",
    "linewidth": 0.0,
    "hatch": "//////",
}
CROSSED: dict[str, Any] = {**HATCHED, "hatch": "xxxxxx"}
UNCOLOURED = "#FAFAFA"  # of a number from too few rounds
DARK = 0.5  # luminance below which letters are white


def draw_cells(
    panel: Panel,
    values: Numbers,
    colours: ScalarMappable,
    text: Callable[[float], str],
    few: Collection[tuple[int, int]] = (),
) -> set[Outcome]:
    """Draw every cell in its value's colour with its text; returns the outcomes that are marked
    with a sign. A cell that is not in the record stays white. few: those whose value is from too
    few rounds for a colour; they are crossed."""
    from matplotlib.colors import to_hex

    for (y, x), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = to_hex(tuple(colours.to_rgba(np.array([value]))[0]))
            fill(panel, x, y, UNCOLOURED if (x, y) in few else colour, text(value))
    hatch(panel, few, CROSSED)
    return draw_signs(panel, values)


def fill(panel: Panel, x: int, y: int, colour: str, text: str) -> None:
    """Draw one cell in that colour, with that text if there is room for it."""
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    panel.axes.add_patch(
        Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.4)
    )
    if panel.cell < LEAST_CELL:
        return
    red, green, blue = to_rgb(colour)
    panel.axes.text(
        x,
        y,
        text,
        color="white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < DARK else "black",
        fontsize=NUMBER_SIZE,
        horizontalalignment="center",
        verticalalignment="center_baseline",
        # Hatching and the line between the sides end at a number.
        bbox={"boxstyle": "square,pad=0.08", "facecolor": colour, "edgecolor": "none"},
    )


def draw_signs(panel: Panel, values: Numbers) -> set[Outcome]:
    """Draw a grey square with a sign wherever the record states why there is no value; returns the
    outcomes found."""
    met: set[Outcome] = set()
    for (x, y), row in cells(panel):
        if not np.isfinite(values[y, x]):
            fill(panel, x, y, GREYS[row.outcome], SIGNS[row.outcome])
            met.add(row.outcome)
    return met


def hatch(
    panel: Panel, places: Iterable[tuple[int, int]], pattern: Mapping[str, Any] = HATCHED
) -> bool:
    """Hatch those cells; returns whether there are any."""
    from matplotlib.patches import Rectangle

    squares = [Rectangle((x - 0.5, y - 0.5), 1, 1, **pattern) for x, y in places]
    for square in squares:
        panel.axes.add_patch(square)
    return bool(squares)


def cells(panel: Panel) -> Iterable[tuple[tuple[int, int], StudyRow]]:
    """The level's rows with their numbers along x and y."""
    xs = {place: number for number, place in enumerate(panel.plane.xs)}
    ys = {place: number for number, place in enumerate(panel.plane.ys)}
    for (x, y), row in panel.plane.of(panel.level).items():
        yield (xs[x], ys[y]), row


# ---------------------------------------------------------------- legends


def sign_handles(met: Iterable[Outcome]) -> list[Artist]:
    """The meaning of the signs in use."""
    from matplotlib.patches import Patch

    found = set(met)
    return [
        Patch(facecolor=GREYS[outcome], label=f"{sign}: {MEANINGS.get(outcome, outcome)}")
        for outcome, sign in SIGNS.items()
        if outcome in found
    ]


def hatch_handle(label: str, pattern: Mapping[str, Any] = HATCHED) -> Artist:
    """The meaning of hatching."""
    from matplotlib.patches import Patch

    return Patch(**pattern, label=label)


def line_handle(label: str, colour: str = "black", width: float = 1.6) -> Artist:
    """The meaning of a line between cells."""
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linewidth=width, label=label)
