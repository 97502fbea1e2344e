"""Tables, figure and files of a life cycle."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given

from golow.programs.life import store
from golow.programs.life.life_record import LifeCycle
from golow.programs.life.mitigations import mitigations
from golow.records.errors import GolowError
from golow.report.console import PlainConsole
from golow.report.life.export import life_rows, total_rows, write_tables
from golow.report.life.figure import life_figure, write_figures
from golow.report.life.table import render
from support.examples import examples
from support.pages.figure_checks import defects, said
from support.records.lives import cycle, cycles, level, life, whole


def printed(found: LifeCycle, width: int = 100) -> str:
    text = io.StringIO()
    render(found, PlainConsole(file=text, width=width, markup=False))
    return text.getvalue()


def test_titles_are_whole_words_at_80_columns() -> None:
    text = printed(whole(), 80)
    for word in ("process", "capture", "build", "start", "steady", "until"):
        assert f" {word} " in text, word
    assert max(map(len, text.splitlines())) <= 80


def test_the_table_shows_stages_uses_failures_and_changes() -> None:
    text = printed(whole())
    for words in (
        "cold cache",
        "warm cache",
        "libtorch overtakes eager at 58,000 iterations",
        "compile:freezing-cudagraphs: failed: cold life, build: died",
        "onednn: not measured: differs: 0/output/0 is wrong",
        "batch to 4",
        "a new one",
        "the linked program is kept",
        "libtorch, cold: 2 of 2 lives did not settle",
        "programs and libraries were in memory",
    ):
        assert words in text, words
    assert max(map(len, text.splitlines())) <= 100


LONG = "my_own_very_long_worker_name"
FOLDED = 20  # characters of a name before the table may go on in the next line


@pytest.mark.slow
@examples(60)
@given(cycles())
@example(
    cycle(
        level(LONG, [life("cold", steady=1.0, first=2.0)]),
        level("eager", [life("cold", steady=1.0, first=1.0, after=None)]),
    )
)
def test_any_record_fits_and_nothing_is_cut(found: LifeCycle) -> None:
    text = printed(found)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert "…" not in text
    assert all(one.level.partition(":")[0][:FOLDED] in text for one in found.levels if one.lives)


def test_an_interrupted_record_says_so() -> None:
    assert "interrupted" in printed(cycle(level("eager", [life()]), interrupted=True))


# ---------------------------------------------------------------- figure


@pytest.mark.slow
@examples(8, suppress_health_check=[HealthCheck.too_slow])
@given(cycles())
def test_nothing_in_the_figure_covers_another(found: LifeCycle) -> None:
    assert defects(life_figure(found)) == []


@pytest.mark.slow
def test_the_figure_names_the_levels_and_what_is_missing(tmp_path: Path) -> None:
    figure = life_figure(whole())
    figure.draw_without_rendering()
    ticks = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert not any("e+" in tick for tick in ticks) and "1.0 M" in ticks
    names = [text.get_text() for panel in figure.axes for text in panel.texts]
    assert names == ["eager", "libtorch from 58,000", "libtorch"]
    assert "No life cycle: compile:freezing-cudagraphs (failed); onednn (differs)" in said(figure)
    [file] = write_figures(whole(), tmp_path)
    before = file.read_bytes()
    write_figures(whole(), tmp_path)
    assert file.read_bytes() == before
    assert life_figure(cycle(level("eager", []))) is not None


# ---------------------------------------------------------------- files


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    store.save(whole(), tmp_path)
    assert store.FILE.is_at(tmp_path)
    assert store.load(tmp_path) == whole()
    assert store.load(tmp_path / store.FILE.name) == whole()
    with pytest.raises(GolowError, match="no life cycle"):
        store.load(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (msgspec.structs.replace(whole(), format_version=2), "format version 2"),
        (cycle(level("a\nb", [])), "is not a name"),
        (cycle(level("a", [life(after=0)])), "before its first iteration"),
        (cycle(level("a", [life(build=-1.0)])), "without a time"),
        (cycle(level("a", [msgspec.structs.replace(life(), seconds={})])), "without an iteration"),
    ],
)
def test_a_record_that_reports_cannot_read_is_refused(
    tmp_path: Path, found: LifeCycle, words: str
) -> None:
    store.save(found, tmp_path)
    with pytest.raises(GolowError, match=words):
        store.load(tmp_path)


def test_tables_have_a_row_a_life(tmp_path: Path) -> None:
    found = whole()
    rows = life_rows(found)
    assert len(rows) == sum(max(1, len(one.lives)) for one in found.levels)
    assert len({tuple(row) for row in rows}) == 1, "all rows have the same columns"
    assert {row["cache"] for row in total_rows(found)} == {"cold", "warm"}
    write_tables(found, tmp_path)
    read = list(csv.DictReader((tmp_path / "life.csv").open()))
    assert [row["level"] for row in read] == [row["level"] for row in rows]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "life-batches.csv",
        "life-mitigations.csv",
        "life-totals.csv",
        "life.csv",
    ]


def test_mitigations_compare_what_was_measured_with_and_without() -> None:
    found = {(one.level, one.stages): one for one in mitigations(whole())}
    assert found["libtorch", "capture, build"].without.median == 30.0
    assert found["libtorch", "capture, build"].used.median == 0.0
    woken = found["eager", "import"]
    assert woken.without.median - woken.used.median == pytest.approx(1.005)
    assert ("eager", "capture, build") not in found, "eager builds nothing"


def test_a_setting_is_compared_with_lives_without_it() -> None:
    eager_loading = life(start=2.0, setting="CUDA_MODULE_LOADING=EAGER")
    found = cycle(level("cudnn", [life(), eager_loading]))
    workload = msgspec.structs.replace(found.workload, device="cuda")
    [tried] = [
        one
        for one in mitigations(msgspec.structs.replace(found, workload=workload))
        if "CUDA_MODULE_LOADING" in one.name
    ]
    assert tried.without.median > tried.used.median
