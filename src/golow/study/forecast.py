"""How long a study will take: from the cells that it has, and before there are any by a guess."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np

from golow.record import Record
from golow.study.cells import work
from golow.study.memory import expected_bytes, guessed_bytes, held_bytes, relatives
from golow.study.record import Cell, CellRecord, StudyLimits

# Until a cell is measured: what one takes beside its racing, once and for each level. Starts,
# builds and the check are most of it.
GUESSED_SECONDS, GUESSED_SECONDS_A_LEVEL = 10.0, 6.0


class Outlook(Record, frozen=True, kw_only=True):
    """What is still to come. guessed: no cell of the study has been measured yet, so that the
    figures are rough guesses. bytes: of the largest cell that is left."""

    cells: int
    left: int
    seconds: float
    bytes: int | None
    limit_bytes: int | None
    guessed: bool


class Devices(NamedTuple):
    """On which cells are measured: how many there are, and the bytes of each."""

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
    """Of a study of so many cells, of which some are left, so many measured at a time. devices:
    those that they share, where a large cell leaves no room for others."""
    measured = [record for record in records if record.state == "done"]
    needs = [expected_bytes(cell, measured) or guessed_bytes(cell) for cell in left]

    def share(cell: Cell) -> float:
        """Of all that can be measured meanwhile, what the cell keeps from others."""
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
    """How many cells were measured beside one another on average, while any was; at least 1."""
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
    """How long a cell will take: between two measured ones of its kind by a line, beyond them as
    long as the nearest; of another kind only their mean is taken."""
    records = list(records)
    alike = relatives(cell, records)
    if alike:
        sizes = [work(record.cell.batch, record.cell.resolution) for record in alike]
        seconds = [record.seconds for record in alike]
        return float(np.interp(work(cell.batch, cell.resolution), sizes, seconds))
    if records:
        return sum(record.seconds for record in records) / len(records)
    guess = GUESSED_SECONDS + GUESSED_SECONDS_A_LEVEL * len(cell.levels) + limits.seconds
    return min(guess, limits.cell_seconds)
