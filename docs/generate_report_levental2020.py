"""Writes the report of the paper's grid from its rows in ``docs/results/levental2020.csv``.

python docs/generate_report_levental2020.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from golow.report.html_report import write_report
from golow.report.study.export import columns
from golow.report.study.rows import StudyRow
from golow.storage.spreadsheet import to_csv

DOCS = Path(__file__).parent
ROWS = DOCS / "results" / "levental2020.csv"
PAGE = DOCS / "reports" / "levental-2020.html"
# The same in every row, and therefore not in the file.
ALIKE = {
    "study": "levental-2020",
    "environment": "h200",
    "model": "resnet50",
    "device": "cuda",
    "precision": "default",
    "threads": None,
    "state": "done",
    "reason": "",
    "cell_seconds": None,
}


def rows() -> Iterator[StudyRow]:
    """The measured rows; an empty cell of the file is a number that there is not."""
    with ROWS.open(newline="") as file:
        for row in csv.DictReader(file):
            cell = "-".join(row[name] for name in ("mode", "batch", "resolution"))
            known = {name: text for name, text in row.items() if text != ""}
            known = {"verdict": None, **ALIKE, "cell": cell, **known}
            yield msgspec.convert(known, StudyRow, strict=False)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        table = Path(folder) / "levental-2020.csv"
        table.write_text(to_csv([msgspec.structs.asdict(row) for row in rows()], list(columns())))
        print(write_report([table], PAGE, "levental2020"))
