"""The rows of a study in which eager overtakes another level as the work grows."""

from __future__ import annotations

from golow.report.study.rows import StudyRow, rows_of
from support.pages.pages import EVIL
from support.records.drawn_studies import (
    cell,
    measured,
    run,
)

GRID = (8, 32, 128)


def overtaking(batch: int, resolution: int) -> float:
    """A ratio to eager that passes 1 at a batch of 64 wherever the resolution is 32 or more."""
    return 0.5 if resolution < 32 else batch / 64


def rows() -> list[StudyRow]:
    cells = []
    for batch in GRID:
        for resolution in GRID:
            asked = cell(batch, resolution, ("eager", EVIL))
            ratio = overtaking(batch, resolution)
            levels = [run(asked, "eager", 0.01, 1.0), run(asked, EVIL, 0.01 * ratio, ratio)]
            cells.append(measured(asked, levels))
    return rows_of(EVIL, cells)


ROWS = rows()
