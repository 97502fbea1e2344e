"""A map of the fastest level in each cell, with its ratio to eager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from string import ascii_uppercase
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from golow.report.published import PublishedGrid
from golow.report.study.caption import captions
from golow.report.study.cells import (
    CROSSED,
    cells,
    draw_signs,
    fill,
    hatch,
    hatch_handle,
    sign_handles,
)
from golow.report.study.cuts import HOLLOW
from golow.report.study.maps import middle
from golow.report.study.measures import TIME, ratio_text
from golow.report.study.panels import level_panels
from golow.report.study.planes import Plane, published_plane
from golow.report.study.rows import Outcome, StudyRow, has_few_rounds
from golow.report.style import caption, drawing, legend_of, look

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

FASTEST = "fastest level"


class Winner(NamedTuple):
    """The row with the least time, and whether another one's interval overlaps its own."""

    row: StudyRow
    close: bool


@drawing()
def fastest_map(plane: Plane, paper: PublishedGrid | None = None) -> Figure:
    """A letter and colour for the level with the least time, with its ratio to eager; hatched
    where another level's interval overlaps its own, crossed where it has too few rounds."""
    from matplotlib.patches import Patch

    under = published_plane(paper, plane)
    winners = {id(shown): winners_of(shown) for shown in (plane, under) if shown}
    figure, panels = level_panels(
        winners_alone(plane, winners[id(plane)]),
        [FASTEST],
        winners_alone(under, winners[id(under)]) if under else None,
        "ratio",
    )
    letters = dict(zip(plane.levels, ascii_uppercase, strict=False))
    met: set[Outcome] = set()
    won: list[str] = []
    hatched = crossed = False
    for panel in panels:
        found = winners[id(under if panel.paper else plane)]
        met |= draw_signs(panel, panel.plane.grid(FASTEST, middle(TIME)))
        close, few = [], []
        for (x, y), cell in cells(panel):
            if (winner := found.get(cell.cell)) is None:
                continue
            row = winner.row
            number = f" {ratio_text(row.ratio)}" if row.ratio is not None else ""
            fill(panel, x, y, look(row.level).colour, f"{letters.get(row.level, '')}{number}")
            won.append(row.level)
            close += [(x, y)] if winner.close else []
            few += [(x, y)] if has_few_rounds(row) else []
        hatched |= hatch(panel, close)
        crossed |= hatch(panel, few, CROSSED)
    handles: list[Artist] = [
        Patch(facecolor=look(level).colour, label=f"{letters.get(level, '')}: {level}")
        for level in plane.levels
        if level in won
    ]
    if hatched:
        handles.append(hatch_handle("another level's interval overlaps"))
    if crossed:
        handles.append(hatch_handle(HOLLOW, CROSSED))
    legend_of(figure, [*handles, *sign_handles(met)])
    what = "the fastest level, with its ratio to eager"
    how = f"fastest: the least {TIME.title}"
    caption(figure, captions(plane, what, how, TIME, paper if under else None))
    return figure


def winners_of(plane: Plane) -> dict[str, Winner]:
    """The winner by cell, for cells in which anything was measured."""
    found = {}
    for cell, rows in _by_cell(plane):
        timed = sorted((value, row.level, row) for row in rows if (value := TIME.of(row)))
        if timed:
            (best, _, row), others = timed[0], timed[1:]
            found[cell] = Winner(row, any(value.low <= best.high for value, _, _ in others))
    return found


def winners_alone(plane: Plane, winners: dict[str, Winner]) -> Plane:
    """One row per cell, of the level `FASTEST`: the winner's, or one with the most frequent
    reason; `not reached` counts only if no level has another reason."""
    rows = []
    for cell, all_rows in _by_cell(plane):
        told = [row for row in all_rows if row.outcome != "not reached"] or all_rows
        outcome, _ = Counter(row.outcome for row in told).most_common(1)[0]
        reason = next(row for row in told if row.outcome == outcome)
        row = winners[cell].row if cell in winners else reason
        rows.append(msgspec.structs.replace(row, level=FASTEST))
    return plane._replace(rows=rows)


def _by_cell(plane: Plane) -> Iterator[tuple[str, list[StudyRow]]]:
    found: dict[str, list[StudyRow]] = {}
    for row in plane.rows:
        found.setdefault(row.cell, []).append(row)
    yield from found.items()
