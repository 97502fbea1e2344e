"""Tables and rows of studies whose cells are load tests or text generations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from rich.table import Table

from golow.programs.study.study_record import Study
from golow.records.errors import GolowError
from golow.report.generation import grid as of_texts
from golow.report.load import grid as under_load
from golow.storage.files import write_whole, writing
from golow.storage.spreadsheet import to_csv


class Grid(NamedTuple):
    """Table and rows of a study's cells. kind: name of the measurement, for messages."""

    kind: str
    table: Table
    rows: list[dict[str, Any]]


def grid_of(study: Study, cells: Sequence[Any]) -> Grid:
    """Return the grid of cells and their measurements."""
    if study.load is not None:
        return Grid("load tests", under_load.grid_table(cells), under_load.grid_rows(cells))
    return Grid("generations", of_texts.grid_table(cells), of_texts.grid_rows(cells))


def export_grid(grid: Grid, format: str, file: Path) -> None:
    """Write the rows to the file atomically. Raises `GolowError` for a format other
    than csv or json, and if the file cannot be written."""
    if format == "csv":
        data = to_csv(grid.rows, list(grid.rows[0]) if grid.rows else []).encode()
    elif format == "json":
        data = msgspec.json.format(msgspec.json.encode(grid.rows)) + b"\n"
    else:
        raise GolowError(f"{grid.kind} cannot be exported as {format}", "use csv or json.")
    with writing(file, "free some space or name another file."):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, data)
