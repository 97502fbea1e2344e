"""Tables of figures in docs/results are what a generator or a benchmark of the project writes."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from golow.report.study.rows import StudyRow
from support.places import DOCS, ROOT

RESULTS = DOCS / "results"
COMMAND = "PYTHONPATH=benchmarks python docs/generate_tables.py"
STUDIES = ["levental2020", "precision"]
STORED = sorted(file.stem for file in (RESULTS / "records").glob("*.json"))
PAGES = sorted(RESULTS.glob("*.md"))
# Parts of pages that a benchmark's --page writes from its records.
BENCHMARKS = {
    ("first_table", "first table"): "first_table.py",
    ("load", "levels under load, cpu"): "load_levels.py",
    ("load", "levels under load, cuda"): "load_levels.py",
    ("memory", "unified memory"): "unified_memory.py",
    ("quantization", "quantized"): "trained_quantized.py",
    ("survey", "survey"): "survey.py",
}
# Tables of facts, by their page and their first column.
FACTS = {
    ("frameworks", "framework"),  # which ones there are, and how they are installed
    ("further_networks", "model"),  # configurations
    ("index", "question"),
    ("memory", "method"),
}
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^\|([^|\n]*)\|.*\n\|[ :-]+\|", re.MULTILINE)


@pytest.fixture(scope="module")
def generator() -> Iterator[ModuleType]:
    """docs/generate_tables.py, which imports the generators beside it."""
    sys.path.insert(0, str(DOCS))
    yield import_module("generate_tables")
    sys.path.remove(str(DOCS))


# ---------------------------------------------------------------- every table


def parts(text: str, names: list[str]) -> str:
    """The text without what is between these marks."""
    for name in names:
        mark = re.escape(name)
        text = re.sub(rf"<!-- {mark}: begin -->.*?<!-- {mark}: end -->", "", text, flags=re.DOTALL)
    return text


def by_hand(page: str, text: str, marks: list[str]) -> list[str]:
    """First columns of the tables that are neither between marks nor facts."""
    heads = [head.strip() for head in TABLE.findall(FENCED.sub("", parts(text, marks)))]
    return [head for head in heads if (page, head) not in FACTS]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_table_of_figures_is_generated(page: Path, generator: ModuleType) -> None:
    name, text = page.stem, page.read_text()
    generated = list(generator.parts(name)) if name in [*STUDIES, *STORED] else []
    marks = [mark for of, mark in BENCHMARKS if of == name]
    assert by_hand(name, text, [*generated, *marks]) == []


def test_a_table_that_was_written_by_hand_is_seen() -> None:
    marked = "<!-- a: begin -->\n| b | c |\n|---|---|\n| 1 | 2 |\n<!-- a: end -->\n"
    assert by_hand("page", marked, ["a"]) == []
    assert by_hand("page", marked + "\n| d | e |\n|---|---|\n| 3 | 4 |\n", ["a"]) == ["d"]
    assert by_hand("memory", marked.replace("| b |", "| method |"), []) == []


@pytest.mark.parametrize("name", [*STUDIES, *STORED])
def test_the_page_has_the_tables_of_its_figures(generator: ModuleType, name: str) -> None:
    page = (RESULTS / f"{name}.md").read_text()
    gone = [mark for mark in generator.parts(name) if f"<!-- {mark}: begin -->" not in page]
    assert gone == [], (
        "a benchmark's --page has written this part: take the tables out of the record, and name "
        "the part in BENCHMARKS"
    )
    assert generator.written(name) == page, COMMAND
    assert name in STORED or COMMAND in page


@pytest.mark.parametrize(("page", "mark"), BENCHMARKS)
def test_the_page_names_the_benchmark_that_writes_its_part(page: str, mark: str) -> None:
    script = BENCHMARKS[page, mark]
    assert re.search(
        rf"^python benchmarks/{script} .*--page docs/results/{page}\.md",
        (RESULTS / f"{page}.md").read_text(),
        re.MULTILINE,
    )
    assert (ROOT / "benchmarks" / script).exists()


@pytest.mark.parametrize("name", STORED)
def test_the_page_says_how_its_figures_were_measured(generator: ModuleType, name: str) -> None:
    text = (RESULTS / f"{name}.md").read_text()
    words = " ".join(text.replace("\\\n", " ").split())
    assert f"](records/{name}.json)" in text
    for table in generator.stored(name).values():
        missing = [said for said in (table.command, table.machine, table.date) if said not in words]
        assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_a_question_and_at_most_five_findings(page: Path) -> None:
    text = page.read_text()
    assert page.stem == "index" or text.splitlines()[0].endswith("?")
    _, _, findings = text.partition("\n## Findings\n")
    assert len(re.findall(r"^\* ", re.split(r"\n## |\n<!-- ", findings)[0], re.MULTILINE)) <= 5
    assert page.stem == "survey" or len(text.splitlines()) <= 250


# ---------------------------------------------------------------- the tables of records


@pytest.mark.usefixtures("generator")
def test_a_cell_has_the_digits_of_its_record() -> None:
    cell_text = import_module("stored_tables").cell_text
    half, low, high = Decimal("1.50"), Decimal("1.4"), Decimal("1.60")
    assert cell_text(half, "") == "1.50"
    assert cell_text(half, "ms") == "1.50 ms"
    assert cell_text(12345, "%") == "12,345%"
    assert cell_text(Decimal("0.0315"), "duration") == "31.5 ms"
    assert cell_text([half, low, high], "us") == "1.50 us (1.4-1.60)"
    assert cell_text([half, low, high, "*"], "us") == "1.50 us (1.4-1.60)*"
    assert cell_text([half, "faster"], "") == "1.50, faster"
    assert (cell_text(None, "ms"), cell_text("not tried", "ms")) == ("-", "not tried")


def test_another_figure_in_a_record_is_another_table(generator: ModuleType) -> None:
    table = generator.stored("small")["cells"]
    changed = msgspec.structs.replace(
        table, rows=(("planted", *table.rows[0][1:]), *table.rows[1:])
    )
    assert "planted" in changed.markdown() != table.markdown()


@pytest.mark.parametrize("page", ["networks", "networks_training"])
def test_the_means_are_those_of_the_rows(generator: ModuleType, page: str) -> None:
    tables = generator.stored(page)
    assert len(tables["means"].rows) == len(tables) - 1
    for name, points, mean, slower, without in tables["means"].rows:
        ratios = [float(row[5][0]) for row in tables[name].rows if row[5] is not None]
        found = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        assert found == pytest.approx(float(mean), abs=0.006)
        assert (points, without) == (len(tables[name].rows), points - len(ratios))
        assert slower == sum(ratio < 1 for ratio in ratios)


def test_the_means_over_points_are_those_of_the_rows(generator: ModuleType) -> None:
    tables = generator.stored("h200")
    for name, points, mean, lowest in tables["means"].rows:
        rows = tables["every point"].rows
        ratios = [float(row[5]) for row in rows if row[0].startswith(f"{name} ")]
        found = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        assert found == pytest.approx(float(mean), abs=0.006)
        assert (points, float(lowest)) == (len(ratios), min(ratios))


# ---------------------------------------------------------------- the tables of studies


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
