"""A generation as a table, a page, a figure and rows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from golow.api import load_generation
from golow.programs.generation import store
from golow.programs.generation.generation_record import Generation
from golow.records.errors import GolowError
from golow.report.generation.export import rows, token_rows
from golow.report.generation.facts import curve, remarks, roof_share
from golow.report.generation.figure import write_figures
from golow.report.generation.table import WIDTH, render
from golow.report.page.generation import sections
from support.records.generations import EVERYTHING, ROUNDS, TOKENS


def printed(found: Generation, width: int = WIDTH) -> str:
    console = Console(width=width, markup=False, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        render(found, console)
    return captured.get()


def test_the_table_has_80_columns_at_most_and_every_level() -> None:
    text = printed(EVERYTHING)
    assert max(map(len, text.splitlines())) <= WIDTH
    for run in EVERYTHING.cases[0].runs:
        assert run.level in text
    for word in ("first", "p99", "tok/s", "/user", "roof", "J/tok", "858 MiB", "3.50 s"):
        assert word in text
    assert "…" not in text


def test_the_table_states_where_a_text_leaves_the_baselines() -> None:
    said = [one for one in remarks(EVERYTHING) if "departs" in one]
    assert said == [
        f"batch {batch}, compile:static: its text departs from that of eager:static at token 3"
        + (" of text 0" if batch > 1 else "")
        + ", where the best logits are 2e-05 apart; rounding explains up to 0.0002"
        for batch in (1, 8)
    ]


def test_texts_that_are_alike_are_shown_once() -> None:
    assert printed(EVERYTHING).count("The  sea i") == 1


def test_the_roof_counts_weights_once_and_the_keys_and_values_of_each_text() -> None:
    case = EVERYTHING.cases[1]
    seconds = (344e6 + 8 * 73_728 * (4 + 3.5)) / 2e10
    share = roof_share(EVERYTHING, case, case.runs[0])
    assert share == pytest.approx(seconds / 0.02)


def test_a_curve_begins_behind_the_first_token() -> None:
    case = EVERYTHING.cases[0]
    points = curve(case, case.runs[0])
    assert [place for place, _ in points] == list(range(5, 5 + TOKENS - 1))
    assert {seconds for _, seconds in points} == {0.02}


def test_rows_have_every_level_and_token() -> None:
    table = rows(EVERYTHING)
    assert len(table) == sum(len(case.runs) for case in EVERYTHING.cases)
    assert table[0]["tokens_per_second"] == pytest.approx(50)
    assert table[6 + 1]["tokens_per_second"] == pytest.approx(8 / 0.021)
    assert table[3]["token_seconds"] is None
    assert len(token_rows(EVERYTHING)) == 2 * 3 * (TOKENS - 1)


def test_the_page_has_a_curve_and_the_texts() -> None:
    kinds = [block["kind"] for section in sections(EVERYTHING, "r0") for block in section["blocks"]]
    assert kinds.count("table") == 2
    assert kinds.count("chart") == 2
    assert "code" in kinds


def test_the_figure_is_written_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (first,) = write_figures(EVERYTHING, tmp_path / "a")
    (second,) = write_figures(EVERYTHING, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert b"tokens before" in first.read_bytes()


def test_the_figure_says_that_nothing_was_timed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = EVERYTHING.cases[0].runs[3:]
    case = msgspec.structs.replace(EVERYTHING.cases[0], runs=runs)
    found = msgspec.structs.replace(EVERYTHING, cases=(case,), read_rate=None)
    (file,) = write_figures(found, tmp_path)
    assert b"nothing was timed" in file.read_bytes()


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    folder = store.save(EVERYTHING, tmp_path)
    assert store.save(EVERYTHING, tmp_path) == folder
    assert load_generation(folder).generation == EVERYTHING


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cases": ()}, "no batch size"),
        ({"id": "../x"}, "not a folder name"),
        ({"format_version": 9}, "format version 9"),
    ],
)
def test_a_record_that_reports_cannot_show_is_refused(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    broken = msgspec.structs.replace(EVERYTHING, **change)
    (tmp_path / "generation.json").write_bytes(msgspec.json.encode(broken))
    with pytest.raises(GolowError, match=said):
        store.load(tmp_path)


def test_a_block_without_a_time_for_each_token_is_refused(tmp_path: Path) -> None:
    run = EVERYTHING.cases[0].runs[0]
    blocks = (msgspec.structs.replace(run.blocks[0], host_ns=(1,)), *run.blocks[1:])
    assert len(blocks) == ROUNDS
    runs = (msgspec.structs.replace(run, blocks=blocks),)
    case = msgspec.structs.replace(EVERYTHING.cases[0], runs=runs)
    broken = msgspec.structs.replace(EVERYTHING, cases=(case,))
    (tmp_path / "generation.json").write_bytes(msgspec.json.encode(broken))
    with pytest.raises(GolowError, match="a time for each token"):
        store.load(tmp_path)
