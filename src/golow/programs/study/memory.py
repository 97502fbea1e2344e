"""How much memory a cell will need, and whether that is certain to be too much.

The memory of one iteration grows with the cell: activations and their gradients, in proportion to
the pixels of a batch. So the bytes per pixel of measured cells predict other cells, and a cell
whose prediction is far above the limit is not tried. Only the baseline counts: without it nothing
in a cell is timed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from statistics import median_low

import numpy as np

from golow.levels.ladder import baseline
from golow.models import ZOO
from golow.programs.study.cells import work
from golow.programs.study.study_record import Cell, CellRecord
from golow.records.workload import Mode
from golow.workload.request import sample_shape

# Small images need more bytes per pixel than large ones, so a prediction is not exact. Only a cell
# predicted at more than this many times the limit is certain not to fit.
MARGIN = 1.5

# A cell predicts cells up to this many times as large. What an operation takes for itself does not
# grow with the pixels: in training, eager holds 4 GiB on 1024 images of 8x8 but 0.2 GiB on 8 images
# of 128x128, which have twice the pixels.
REACH = 16

# GPU memory of a worker in addition to an iteration's: the context, the libraries and
# their workspaces, and what the allocator keeps from the check. The values are generous; a cell
# that runs out of memory alongside others is measured again alone.
WORKERS_OWN_BYTES = 2**30
WORKERS_SHARE = 1.5

# A level may hold more on the GPU while it loads and is checked than it holds in the race.
HELD_MARGIN = 1.1

# Until two cells are measured: bytes per pixel of input, roughly those of ResNet-50 in float32, and
# bytes per parameter. Training keeps every activation, gradients and momentum.
GUESSED_BYTES: dict[Mode, tuple[int, int]] = {"infer": (256, 4), "train": (2048, 12)}

UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SHARE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) *%")
SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) *([KMGT]iB)")


def limit_bytes(text: str, total: int | None) -> int | None:
    """The bytes of a limit on a device of total bytes; None if the text is not a limit, or is a
    share and the total is unknown."""
    if share := SHARE.fullmatch(text.strip()):
        return round(float(share[1]) / 100 * total) if total is not None else None
    if size := SIZE.fullmatch(text.strip()):
        return round(float(size[1]) * UNITS[size[2]])
    return None


def family(cell: Cell) -> tuple[object, ...]:
    """Key of cells of which one can predict the others."""
    where = cell.device, cell.threads, cell.ranks
    return cell.model, cell.source, cell.mode, cell.precision, cell.input, *where


def relatives(cell: Cell, records: Iterable[CellRecord]) -> list[CellRecord]:
    """The records of cells that differ from this one only in batch and resolution, the smallest
    first."""
    found = [record for record in records if family(record.cell) == family(cell)]
    return sorted(found, key=_pixels)


def _pixels(record: CellRecord) -> int:
    return work(record.cell.batch, record.cell.resolution)


def expected_bytes(cell: Cell, records: Iterable[CellRecord]) -> int | None:
    """The memory of one iteration, predicted from the median bytes per pixel of the measured cells
    within `REACH`; None if there are fewer than two."""
    pixels = work(cell.batch, cell.resolution)
    a_pixel = [
        record.needed_bytes / size
        for record in relatives(cell, records)
        if record.needed_bytes and pixels <= REACH * (size := _pixels(record))
    ]
    return round(median_low(a_pixel) * pixels) if len(a_pixel) > 1 else None


def guessed_bytes(cell: Cell) -> int:
    """A fixed guess for a cell about which nothing is known yet: by the pixels of a batch, or by
    its elements if the study states the input."""
    entry = ZOO.get(cell.model)
    side = cell.resolution or (entry.resolution if entry else 224)
    elements = cell.batch * math.prod(sample_shape(cell.input)) if cell.input else None
    a_pixel, a_parameter = GUESSED_BYTES[cell.mode]
    parameters = entry.parameters if entry else 0
    return a_pixel * (elements or work(cell.batch, side)) + a_parameter * parameters


def held_bytes(cell: Cell, records: Iterable[CellRecord]) -> int:
    """The memory that all workers of a cell will hold on its device together.

    Predicted by a line through measured cells with the same levels: memory held by all workers over
    memory needed by eager. The line includes each worker's fixed share. Its slope is the median of
    the slopes of all pairs, so that a single cell in which an operation takes gigabytes does not
    decide (Theil 1950, Sen 1968; written here because scipy's takes a second to import). With fewer
    than two such cells, the estimate comes from eager's memory alone.
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
    # Before the levels start, the reference in float64 holds twice what eager needs.
    return round(HELD_MARGIN * max(float(at_a_time), 2.0 * eager))


def too_large(cell: Cell, records: Iterable[CellRecord], limit: int | None) -> str:
    """Why the cell is certain to need more memory than allowed; empty if it is not certain."""
    records = list(records)
    for record in relatives(cell, records):
        if baseline(cell.ranks) in record.out_of_memory and _is_within(record.cell, cell):
            resolution = record.cell.resolution
            size = f" at {resolution}x{resolution}" if resolution else ""
            return f"memory already ran out at a batch of {record.cell.batch}{size}"
    expected = expected_bytes(cell, records)
    if limit is not None and expected is not None and expected > MARGIN * limit:
        return (
            f"an iteration of eager would hold about {expected / 2**30:.0f} GiB, judging by "
            f"smaller cells; {limit / 2**30:.0f} GiB are allowed"
        )
    return ""


def too_early(
    cell: Cell, records: Iterable[CellRecord], to_come: Iterable[Cell], limit: int | None
) -> bool:
    """True if the cell should wait: the guess states that it needs more memory than allowed, and
    smaller cells of its family, which will show whether it does, are not done."""
    if limit is None or guessed_bytes(cell) <= limit or expected_bytes(cell, records) is not None:
        return False
    size = work(cell.batch, cell.resolution)
    return any(
        work(other.batch, other.resolution) < size and family(other) == family(cell)
        for other in to_come
    )


def _is_within(small: Cell, large: Cell) -> bool:
    return small.batch <= large.batch and (small.resolution or 0) <= (large.resolution or 0)
