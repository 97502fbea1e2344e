"""A study under load: a row for each cell, level and rate, as a table or as flat rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from golow.programs.load.load_record import LoadTest
from golow.programs.study.study_record import Cell
from golow.report.console import level_text
from golow.report.load.export import rows as exported
from golow.report.load.facts import Row
from golow.report.load.facts import rows as fact_rows
from golow.report.load.table import framed, percentile_cell, percentile_text
from golow.report.units import MISSING, joules_text, rate_text

SHARES = (0.5, 0.99)
AXES = {"model": "model", "batch": "largest\nbatch", "resolution": "resolution"}
AXES |= {"precision": "precision", "threads": "threads"}
"""Axes of cells, and the titles of their columns."""

Measured = tuple[Cell, LoadTest]


def grid_table(cells: Sequence[Measured]) -> Table:
    """The percentiles of every level at every rate, with the axes on which cells differ."""
    table, shown = framed("level"), _shown(cells)
    names = [AXES[axis] for axis in shown]
    names += ["target\nrate", "result", *(f"{percentile_text(share)}\nms" for share in SHARES)]
    for name in (*names, "samples\n/s", "batch", "energy per\nrequest"):
        table.add_column(name, justify="right", no_wrap=True)
    for cell, found in cells:
        rate: float | None = None
        for row in fact_rows(found, "server"):
            if row.rate != rate and table.row_count:
                table.add_section()
            rate = row.rate
            places = (str(getattr(cell, axis)) for axis in shown)
            table.add_row(level_text(row.level), *places, *_cells(row))
    return table


def grid_rows(cells: Sequence[Measured]) -> list[dict[str, Any]]:
    """The rows of `golow load` with the axes of their cells. ``batch`` is the mean of what ran, and
    ``max_batch`` the axis."""
    return [
        {
            **row,
            "max_batch": cell.batch,
            "resolution": cell.resolution,
            "precision": cell.precision,
            "threads": cell.threads,
        }
        for cell, found in cells
        for row in exported(found)
    ]


def _shown(cells: Sequence[Measured]) -> list[str]:
    """The axes on which cells differ; always the largest batch."""
    return [
        axis for axis in AXES if axis == "batch" or len({getattr(c, axis) for c, _ in cells}) > 1
    ]


def _cells(row: Row) -> Iterator[str]:
    yield rate_text(row.rate or 0.0)
    yield row.outcome
    yield from (percentile_cell(row.spreads["latency"].percentiles[share]) for share in SHARES)
    yield rate_text(row.throughput) if row.throughput is not None else MISSING
    yield f"{row.batch:.1f}" if row.batch is not None else MISSING
    yield joules_text(row.joules)
