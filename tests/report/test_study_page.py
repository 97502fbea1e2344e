"""The page among a study's figures is that of `golow report`: it has the study's numbers and its
record, and asks the network for nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given

from golow.programs.study.store import StudyFolder
from golow.report.html_report import write_report
from golow.report.page import study
from golow.report.page.file import unpacked, write_page
from golow.report.published import levental2020_grid
from golow.report.study.measures import ratio_text
from golow.report.study.planes import planes
from golow.report.study.rows import StudyRow, load, rows_of
from support.command import golow
from support.examples import examples
from support.pages.pages import EVIL, in_page
from support.records.drawn_studies import (
    SMALL,
    cell,
    measured,
    run,
    small,
    studies,
    unmeasured,
    write,
)

PAPER = levental2020_grid()


def write_page_of(folder: Path, *options: str) -> Path:
    """The page that the command writes."""
    out = folder.parent / "figures"
    ended = golow(
        *("study", "figures", folder.name, "--studies", str(folder.parent), "--out", str(out)),
        *("--formats", "html", *options),
    )
    assert (ended.status, ended.output) == (0, f"{out / 'study.html'}\n")
    return out / "study.html"


def maps(sections: list[Any], name: str) -> dict[str, list[list[Any]]]:
    """The rows of the section's maps without the labels of their rows, by caption."""
    [section] = [one for one in sections if one["id"] == f"r0-0-{name}"]
    beside = [one for one in section["blocks"] if one["kind"] == "beside"]
    tables = [table for one in beside for table in one["blocks"]]
    return {table["caption"]: [row[1:] for row in table["rows"]] for table in tables}


def texts(rows: list[list[Any]]) -> list[list[str]]:
    return [[one["text"] for one in row] for row in rows]


@pytest.mark.slow
def test_it_is_the_page_of_the_report_with_every_number(tmp_path: Path) -> None:
    folder = write(tmp_path / "a-study", SMALL)
    page = write_page_of(folder, "--reference", "levental2020")
    reported = write_report([folder], tmp_path / "report.html", "levental2020")
    assert page.read_bytes() == reported.read_bytes()
    with unpacked(page) as [inside]:
        assert load(inside) == load(folder)
    sections = in_page(page, "golow-view")["sections"]
    plane = small()
    found = maps(sections, "ratio")
    assert list(found)[:2] == ["torchscript (train)", "libtorch (train)"]
    assert "cudnn, as published: 2020 (V100) (train)" in found
    rows = plane.of("cudnn")
    for y, row in zip(plane.ys, found["cudnn (train)"], strict=True):
        for x, shown in zip(plane.xs, row, strict=True):
            ratio = rows[x, y].ratio
            assert (ratio is None) == (shown.get("order") is None)
            if ratio is not None:
                assert shown["text"].removesuffix("?") == ratio_text(ratio)
                assert shown["order"] == ratio
    text = page.read_text()
    assert "default-src 'none'" in text and "connect-src" not in text
    assert "src=" not in text.partition("<script")[0]
    assert len(text) < 1e6


def test_a_study_without_cells_has_no_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "a-study", SMALL[:1])
    shutil.rmtree(StudyFolder(folder).cells)
    ended = golow(
        *("study", "figures", "a-study", "--studies", str(tmp_path)),
        *("--out", str(tmp_path / "figures"), "--formats", "html"),
    )
    assert (ended.status, list(tmp_path.glob("figures/*"))) == (0, [])
    assert ended.output == "nothing was drawn: a-study has no measured cell\n"


def test_it_shows_the_fastest_level_of_each_cell() -> None:
    levels = ("eager", "libtorch", "cudnn")
    asked = [cell(batch, 32, levels) for batch in (8, 16, 32)]
    times = ((1.0, 0.5, 0.25), (1.0, 0.5, 0.501), (1.0, 2.0, 3.0))
    cells = [
        measured(one, [run(one, v, t, t) for v, t in zip(levels, all_times, strict=True)])
        for one, all_times in zip(asked, times, strict=True)
    ]
    cells.append(unmeasured(cell(64, 32, levels), "skipped", "too large"))
    [found] = maps(study.sections(rows_of("a-study", cells), "r0"), "fastest").values()
    won = ["cudnn\n0.25 of eager", "libtorch\n0.50 of eager", "eager\n1.00 of eager", "-"]
    assert texts(found) == [won]


def test_what_has_too_few_rounds_has_no_colour_in_it() -> None:
    levels = ("eager", "cudnn")
    asked = {rounds: cell(rounds, 32, levels) for rounds in (1, 3, 12)}
    cells = [
        measured(
            one, [run(one, v, t, t, rounds=n) for v, t in zip(levels, (1.0, 0.5), strict=True)]
        )
        for n, one in asked.items()
    ]
    [found] = maps(study.sections(rows_of("a-study", cells), "r0"), "ratio").values()
    assert texts(found) == [["0.50"] * 3]
    assert [one["heat"] > 0 for one in found[0]] == [False, False, True]


@examples(5, suppress_health_check=list(HealthCheck))
@given(studies().filter(bool))
def test_no_study_breaks_the_page(
    tmp_path_factory: pytest.TempPathFactory, rows: list[StudyRow]
) -> None:
    sections = study.sections(rows, "r0", PAPER)
    file = tmp_path_factory.mktemp("page") / "study.html"
    page = write_page("a study", sections, {}, file).read_text()
    assert page.count("</script>") == 3
    planned = {one["id"] for one in in_page(file, "golow-view")["sections"]}
    assert {f"r0-{number}-fastest" for number in range(len(planes(rows)))} <= planned


def test_a_name_does_not_end_the_script_that_it_stands_in(tmp_path: Path) -> None:
    asked = cell(8, 8, ("eager", EVIL))
    levels = [run(asked, "eager", 1.0, 1.0), run(asked, EVIL, 0.5, 0.5)]
    rows = rows_of("a-study", [measured(asked, levels)])
    page = write_page("</title>", study.sections(rows, "r0"), {}, tmp_path / "study.html")
    assert page.read_text().count("</script>") == 3
    assert "<title>&lt;/title&gt;</title>" in page.read_text()
    assert EVIL in str(in_page(page, "golow-view"))
