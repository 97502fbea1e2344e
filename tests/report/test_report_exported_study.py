"""An exported study is a page, and is read back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from golow.records.errors import GolowError
from golow.report.html_report import write_report
from golow.report.page.file import unpacked, write_page
from golow.report.study.export import columns, export, read_csv
from golow.report.study.rows import StudyRow, load
from golow.storage.spreadsheet import from_cell, to_csv
from support.command import golow
from support.examples import examples
from support.records.drawn_studies import (
    levental_like,
    studies,
    write,
)


@pytest.mark.slow
def test_an_exported_study_is_reported_and_read_back(tmp_path: Path) -> None:
    folder = write(tmp_path / "a-study", levental_like((8, 64), (8, 32)))
    file = export(folder, "csv", tmp_path / "a.csv")
    ended = golow("report", str(file), "--out", "page.html", folder=tmp_path)
    assert (ended.status, ended.output) == (0, "report: page.html\n")
    with unpacked(tmp_path / "page.html") as [inside]:
        assert read_csv(inside / "a.csv") == load(folder)
    shown = golow("show", str(tmp_path / "page.html"))
    assert shown.output == golow("show", str(file)).output == golow("show", str(folder)).output
    whole = write_report([folder], tmp_path / "whole.html").read_text()
    assert (tmp_path / "page.html").read_text().count("opens") == whole.count("opens")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column 'study'"),
        ("mode,batch\ninfer,8\n", "no column 'study'"),
        (",".join(columns()) + "\n" + "x," * 60 + "\n", "line 2"),
    ],
)
def test_another_table_is_an_error(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text(text)
    for command in (("report", "--out", str(tmp_path / "page.html")), ("show",)):
        ended = golow(command[0], str(file), *command[1:])
        assert ended.status == 2
        assert said in ended.error
        assert "golow study export" in ended.error
    assert not (tmp_path / "page.html").exists()


def test_a_page_with_another_table_says_what_it_cannot_read(tmp_path: Path) -> None:
    page = write_page("x", [], {"0-a": {"a.csv": "mode,batch\ninfer,8\n"}}, tmp_path / "page.html")
    ended = golow("show", str(page))
    assert ended.status == 2
    assert "is not an exported study" in ended.error


@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(studies())
def test_rows_survive_their_csv(
    tmp_path_factory: pytest.TempPathFactory, found: list[StudyRow]
) -> None:
    file = tmp_path_factory.mktemp("csv") / "rows.csv"
    text = to_csv([msgspec.structs.asdict(row) for row in found], list(columns()))
    file.write_text(text, encoding="utf-8", newline="")
    assert read_csv(file) == found


@given(st.text())
def test_a_cell_is_the_text_that_it_was(text: str) -> None:
    shown = to_csv([{"a": text}]).partition("\n")[2]
    if not {*text} & set(',"\r\n'):
        assert from_cell(shown.removesuffix("\r\n").removesuffix("\n").strip('"')) == text


def test_no_such_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GolowError, match="there is no file or folder"):
        write_report([tmp_path / "nothing"], tmp_path / "page.html")
