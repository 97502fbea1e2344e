"""How much memory a cell will need, and whether that is certain to be too much.

What grows with a cell is what one iteration holds: activations and their gradients, in proportion
to the pixels of a batch. So the bytes a pixel of measured cells tell of others, and a cell that is
far above the limit by them is not tried. Only eager counts: without it nothing in a cell is timed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import median_low

import numpy as np

from golow.levels.ladder import BASELINE
from golow.models import ZOO
from golow.record import Mode
from golow.study.cells import work
from golow.study.record import Cell, CellRecord

# Small pictures need more a pixel than large ones, so that this is not exact: only what is this
# much above the limit is certain.
MARGIN = 1.5

# A cell tells of those that are up to this many times as large. What an operation takes for itself
# does not grow with the pixels: eager holds 4 GiB in training on 1024 pictures of 8x8, and 0.2 on 8
# of 128x128, which are twice the pixels.
REACH = 16

# What a worker holds on a card beside what an iteration needs: the context, the libraries and their
# workspaces, and what the allocator keeps of the check. Generous: a cell that runs out of memory
# beside others is measured once more alone.
WORKERS_OWN_BYTES = 2**30
WORKERS_SHARE = 1.5

# What is on the card while a level loads and is checked may be more than what it holds in the race.
HELD_MARGIN = 1.1

# Until two cells are measured: bytes a pixel of input, roughly ResNet-50's in float32, and bytes a
# parameter. Training keeps every activation, gradients and momentum.
GUESSED_BYTES: dict[Mode, tuple[int, int]] = {"infer": (256, 4), "train": (2048, 12)}

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SHARE = re.compile(r"(\d+(?:\.\d+)?) *%")
SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGT]iB)")


def limit_bytes(text: str, total: int | None) -> int | None:
    """The bytes that a limit means on a device of so many; None for a text that is no limit, and
    for a share of nobody knows what."""
    if share := SHARE.fullmatch(text.strip()):
        return round(float(share[1]) / 100 * total) if total is not None else None
    if size := SIZE.fullmatch(text.strip()):
        return round(float(size[1]) * UNITS[size[2]])
    return None


def family(cell: Cell) -> tuple[object, ...]:
    """What two cells must share for one to say something of the other."""
    return cell.model, cell.source, cell.mode, cell.precision, cell.device, cell.threads


def relatives(cell: Cell, records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records of cells that differ from this one in nothing but batch and resolution, from the
    smallest to the largest."""
    found = [record for record in records if family(record.cell) == family(cell)]
    return sorted(found, key=_pixels)


def _pixels(record: CellRecord) -> int:
    return work(record.cell.batch, record.cell.resolution)


def expected_bytes(cell: Cell, records: Iterable[CellRecord]) -> int | None:
    """What one iteration will hold, by the median of the bytes a pixel of the cells in whose reach
    it is; None before there are two."""
    pixels = work(cell.batch, cell.resolution)
    a_pixel = [
        record.needed_bytes / size
        for record in relatives(cell, records)
        if record.needed_bytes and pixels <= REACH * (size := _pixels(record))
    ]
    return round(median_low(a_pixel) * pixels) if len(a_pixel) > 1 else None


def guessed_bytes(cell: Cell) -> int:
    """A stated guess for a cell of a study of which nothing is known."""
    entry = ZOO.get(cell.model)
    resolution = cell.resolution or (entry.resolution if entry else 224)
    a_pixel, a_parameter = GUESSED_BYTES[cell.mode]
    parameters = entry.parameters if entry else 0
    return a_pixel * work(cell.batch, resolution) + a_parameter * parameters


def held_bytes(cell: Cell, records: Iterable[CellRecord]) -> int:
    """What all workers of a cell will hold on its device at a time.

    By the line through what those of other cells with the same levels held over what eager needed
    there, which knows what every worker holds for itself. One cell in which an operation takes
    gigabytes must not decide: the slope is the median of those of all pairs (Theil 1950, Sen 1968;
    here since scipy's takes a second to import). Before there are two by what eager needs.
    """
    records = list(records)
    eager = expected_bytes(cell, records) or guessed_bytes(cell)
    alike = {
        record.needed_bytes: record.held_bytes
        for record in relatives(cell, records)
        if record.needed_bytes and record.held_bytes and not record.out_of_memory
        if set(record.cell.levels) == set(cell.levels)
    }
    if len(alike) < 2:
        return len(cell.levels) * round(WORKERS_SHARE * eager + WORKERS_OWN_BYTES)
    needed, held = np.array(list(alike.items()), float).T
    one, other = np.triu_indices(len(alike), 1)
    slope = max(0.0, np.median((held[one] - held[other]) / (needed[one] - needed[other])))
    at_a_time = np.median(held) + slope * (eager - np.median(needed))
    # Before the levels are there, the reference in float64 has twice what eager needs.
    return round(HELD_MARGIN * max(float(at_a_time), 2.0 * eager))


def too_large(cell: Cell, records: Iterable[CellRecord], limit: int | None) -> str:
    """Why the cell is certain to need more memory than there is; empty if it is not certain."""
    records = list(records)
    for record in relatives(cell, records):
        if BASELINE in record.out_of_memory and _is_within(record.cell, cell):
            resolution = record.cell.resolution
            size = f" at {resolution}x{resolution}" if resolution else ""
            return f"memory ran out at a batch of {record.cell.batch}{size} already"
    expected = expected_bytes(cell, records)
    if limit is not None and expected is not None and expected > MARGIN * limit:
        return (
            f"an iteration of eager would hold about {expected / 2**30:.0f} GiB, by what smaller "
            f"cells held; {limit / 2**30:.0f} GiB are allowed"
        )
    return ""


def too_early(
    cell: Cell, records: Iterable[CellRecord], to_come: Iterable[Cell], limit: int | None
) -> bool:
    """Whether a guess says that the cell needs more memory than there is, while smaller cells of
    its family, by which that will be known, have not ended."""
    if limit is None or guessed_bytes(cell) <= limit or expected_bytes(cell, records) is not None:
        return False
    size = work(cell.batch, cell.resolution)
    return any(
        work(other.batch, other.resolution) < size and family(other) == family(cell)
        for other in to_come
    )


def _is_within(small: Cell, large: Cell) -> bool:
    return small.batch <= large.batch and (small.resolution or 0) <= (large.resolution or 0)
