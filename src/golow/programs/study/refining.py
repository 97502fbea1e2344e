"""Cells with too few rounds for a conclusion: how they are measured again, and what is kept.

A cell is measured anew, in a longer race, and replaces the earlier one only if it is better. The
rounds of the two are not joined. Two processes of one program differ by up to a percent as long as
they live, so rounds of one process are alike in a way that the bootstrap, which draws rounds as if
they were independent, would not see: the joined interval would be too narrow. And a comparison is
one race: its proof, memory and energy belong to the processes that were timed. Little is lost, as
an unclear cell has four rounds at most.
"""

from __future__ import annotations

import msgspec

from golow.programs.comparison.store import Timed
from golow.programs.study.study_record import Cell, CellRecord

ROUNDS = 10
"""Rounds for which a cell gets the time: with fewer, no race stops on its intervals."""

LEAST_GROWTH = 2.0  # times the seconds before, whatever the rounds took


def with_more_time(record: CellRecord, timed: Timed) -> Cell:
    """The cell to measure instead of that of the record, whose race was timed like this: the same
    with time for enough rounds."""
    cell = record.cell
    a_round = timed.seconds / min(timed.rounds.values())
    return msgspec.structs.replace(cell, seconds=max(LEAST_GROWTH * cell.seconds, ROUNDS * a_round))


def is_better(after: Timed, before: Timed) -> bool:
    """True if every level that was timed before was timed again, the rarest in more rounds."""
    both = after.rounds.keys() >= before.rounds.keys()
    return both and min(after.rounds.values()) > min(before.rounds.values())
