"""How long a study will take, from its measured cells, or by a guess before there are any."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from golow.programs.study.cells import work
from golow.programs.study.memory import expected_bytes, guessed_bytes, held_bytes, relatives
from golow.programs.study.study_record import Cell, CellRecord, StudyLimits
from golow.records.record import Record

# Until a cell is measured: the seconds that it takes besides racing, per cell and per level, mostly
# for starts, builds and the check.
GUESSED_SECONDS, GUESSED_SECONDS_A_LEVEL = 10.0, 6.0


class Outlook(Record, frozen=True, kw_only=True):
    """Remaining work of a study. guessed: no cell of the study has been measured yet, so the
    figures are rough guesses. bytes: memory of the largest remaining cell."""

    cells: int
    left: int
    seconds: float
    bytes: int | None
    limit_bytes: int | None
    guessed: bool


class Devices(NamedTuple):
    """The devices on which cells are measured: their number, and the memory of each."""

    number: int
    memory_bytes: int


def outlook(
    total: int,
    left: Sequence[Cell],
    records: Iterable[CellRecord],
    limits: StudyLimits,
    allowed: int | None,
    at_a_time: float = 1,
    devices: Devices | None = None,
) -> Outlook:
    """Estimate the remaining work. total: number of its cells. left: those that remain. at_a_time:
    how many are measured at the same time. devices: given if cells share them, so that a large cell
    leaves no room for others."""
    measured = [record for record in records if record.is_measured]
    needs = [expected_bytes(cell, measured) or guessed_bytes(cell) for cell in left]

    def share(cell: Cell) -> float:
        """The share of all capacity that the cell takes while it runs."""
        if devices is None:
            return 1 / at_a_time
        held = min(1.0, held_bytes(cell, measured) / devices.memory_bytes)
        return max(1 / at_a_time, held / devices.number)

    return Outlook(
        cells=total,
        left=len(left),
        seconds=sum(expected_seconds(cell, measured, limits) * share(cell) for cell in left),
        bytes=max(needs, default=None),
        limit_bytes=allowed,
        guessed=not measured,
    )


def so_far_at_a_time(records: Iterable[CellRecord]) -> float:
    """How many cells ran at the same time on average, while any ran; at least 1."""
    spans = sorted(
        (start, start + record.seconds)
        for record in records
        if record.seconds and (start := datetime.fromisoformat(record.created).timestamp())
    )
    covered, until = 0.0, -math.inf
    for start, end in spans:
        covered += max(0.0, end - max(start, until))
        until = max(until, end)
    return max(1.0, sum(end - start for start, end in spans) / covered) if covered else 1.0


def expected_seconds(cell: Cell, records: Iterable[CellRecord], limits: StudyLimits) -> float:
    """How long a cell will take, interpolated between measured cells of its kind, or as long as the
    nearest one outside their range. If all are of other kinds, their mean; if there are none, a
    guess. A cell with a longer race than the study's takes that much longer."""
    records = list(records)
    longer = cell.seconds - limits.seconds
    alike = relatives(cell, records)
    if alike:
        sizes = [work(record.cell.batch, record.cell.resolution) for record in alike]
        seconds = [record.seconds for record in alike]
        return float(np.interp(work(cell.batch, cell.resolution), sizes, seconds)) + longer
    if records:
        return sum(record.seconds for record in records) / len(records) + longer
    guess = GUESSED_SECONDS + GUESSED_SECONDS_A_LEVEL * len(cell.levels) + limits.seconds
    return min(guess, limits.cell_seconds)
