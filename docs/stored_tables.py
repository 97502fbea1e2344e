"""Tables of the pages of results, from the figures that are stored in ``docs/results/records``.

A record has the tables of the page of its name, with the command, the machine and the date of the
measurement. Its figures have the digits with which golow printed them, and are printed so again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from golow.report.units import seconds_text

RECORDS = Path(__file__).parent / "results" / "records"
DURATION = "duration"
"""The unit of seconds that are printed as microseconds to hours."""


class Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The head of a column, and the unit of its figures."""

    title: str
    unit: str = ""


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table, and where its figures come from.

    rows: a cell is a text, a figure, null, or a list of a figure, the ends of its 95% interval and
    a remark; interval and remark may be left out.
    """

    command: str
    machine: str
    date: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]

    def markdown(self) -> str:
        """The table as a page shows it."""
        rows = [
            [cell_text(cell, column.unit) for cell, column in zip(row, self.columns, strict=True)]
            for row in self.rows
        ]
        return markdown([column.title for column in self.columns], rows)


def stored(page: str) -> dict[str, Table]:
    """The tables of a page by their names."""
    text = (RECORDS / f"{page}.json").read_text()
    return msgspec.convert(json.loads(text, parse_float=Decimal), dict[str, Table])


def pages() -> list[str]:
    """Names of all pages with stored tables."""
    return sorted(file.stem for file in RECORDS.glob("*.json"))


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in (titles, *rows)]
    return "\n".join([lines[0], f"|{'---|' * len(titles)}", *lines[1:]])


def cell_text(cell: Any, unit: str) -> str:
    """``12.3 ms (12.1-12.6)``; ``-`` for a figure that was not measured."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    figures = list(cell) if isinstance(cell, list | tuple) else [cell]
    remark = figures.pop() if isinstance(figures[-1], str) else ""
    value, *ends = figures
    text = _with_unit(value, unit)
    if ends:
        low, high = ends
        text += f" ({_number(low)}-{_number(high)})"
    return f"{text}{remark if remark == '*' else f', {remark}' if remark else ''}"


def _with_unit(value: int | Decimal, unit: str) -> str:
    if unit == DURATION:
        return seconds_text(float(value))
    return f"{_number(value)}{unit}" if unit == "%" else f"{_number(value)} {unit}".rstrip()


def _number(value: int | Decimal) -> str:
    """With all digits that are stored: ``1.50``, ``12,345``."""
    return f"{value:,}"
