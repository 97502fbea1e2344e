"""The tables of studies on their pages are what the generator makes of the rows beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import msgspec
import pytest

from golow.report.study.rows import StudyRow
from support.places import DOCS

COMMAND = "PYTHONPATH=benchmarks python docs/generate_tables.py"


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    """docs/generate_tables.py, which imports the generators beside it."""
    sys.path.insert(0, str(DOCS))
    yield import_module("generate_tables")
    sys.path.remove(str(DOCS))


@pytest.mark.parametrize("name", ["levental2020.md", "precision.md"])
def test_the_page_has_the_tables_of_its_rows(generator: ModuleType, name: str) -> None:
    page = DOCS / "results" / name
    assert generator.written(page, generator.PAGES[name]) == page.read_text(), COMMAND
    assert COMMAND in page.read_text()


def test_another_time_in_a_row_is_another_table(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(generator.precision_rows())
    before = generator.precision_part("train")
    slower = [msgspec.structs.replace(rows[-1], sample_time=1.0), *rows[:-1]]
    monkeypatch.setattr(generator, "precision_rows", lambda: iter(slower))
    assert generator.precision_part(rows[-1].mode) != before


def test_a_cell_of_one_round_says_so_and_one_that_does_not_fit_too(generator: ModuleType) -> None:
    eager, row = rows_with(0.01, None), rows_with(0.001, None)
    assert generator.ratio_text(row, eager) == "0.10, one round"
    assert generator.ratio_text(rows_with(0.001, 0.25), eager) == "0.25"
    assert generator.ratio_text(None, eager) == generator.time_text(None) == "memory"
    assert generator.time_text(row) == "1 ms"


def rows_with(seconds: float, ratio: float | None) -> StudyRow:
    [first, *_] = import_module("generate_tables").precision_rows()
    changed: StudyRow = msgspec.structs.replace(first, sample_time=seconds, ratio=ratio)
    return changed
