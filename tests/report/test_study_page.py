"""The interactive page of a study has every number, and asks the network for nothing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from golow.records.errors import GolowError
from golow.report.published import levental2020_grid
from golow.report.study.interactive import write_page
from golow.report.study.planes import planes
from golow.report.study.rows import StudyRow, rows_of
from support.drawn_studies import SMALL, cell, measured, run, small, studies, unmeasured

PAPER = levental2020_grid()


def in_page(page: str, name: str) -> object:
    [found] = re.findall(rf"^const {name} = (.*);$", page, re.MULTILINE)
    return json.loads(found)


def test_the_page_has_every_number_and_asks_the_network_for_nothing(tmp_path: Path) -> None:
    page = write_page(rows_of("a-study", SMALL), tmp_path / "study.html", PAPER).read_text()
    shown = in_page(page, "FIGURES")["train"]  # type: ignore[index]
    [fastest] = shown["map: fastest level"].values()
    assert fastest["layout"]["title"]["text"] == "fastest level: ratio to eager"
    assert list(shown["map: ratio to eager"]) == ["torchscript", "libtorch", "cudnn"]
    assert list(shown["lines: memory over batch"]) == [f"resolution {n}" for n in (8, 64, 1024)]
    assert list(shown["surface: time per sample"]) == ["all levels"]
    plain = small()
    _, numbers = shown["map: ratio to eager"]["cudnn"]["data"]
    ratios = plain.grid("cudnn", lambda row: row.ratio)
    assert np.exp(np.array(numbers["z"], np.float64)) == pytest.approx(ratios, nan_ok=True)
    hover = in_page(page, "HOVER")
    text = hover[numbers["customdata"][0][0]]  # type: ignore[index]
    first = plain.of("cudnn")[8, 8]
    assert f"relative to eager {first.ratio:.3f} ({first.ratio_low:.3f} to" in text
    assert "<b>cudnn</b> measured" in text
    outside = page.replace(page[page.index("<script>") : page.index("</script>")], "")
    assert "http://" not in outside and "https://" not in outside
    assert "default-src 'none'" in outside
    assert len(page) < 7e6


def test_the_page_shows_the_fastest_level_of_each_cell(tmp_path: Path) -> None:
    levels = ("eager", "libtorch", "cudnn")
    asked = [cell(batch, 32, levels) for batch in (8, 16, 32)]
    times = ((1.0, 0.5, 0.25), (1.0, 0.5, 0.501), (1.0, 2.0, 3.0))
    cells = [
        measured(one, [run(one, v, t, t) for v, t in zip(levels, all_times, strict=True)])
        for one, all_times in zip(asked, times, strict=True)
    ]
    cells.append(unmeasured(cell(64, 32, levels), "skipped", "too large"))
    page = write_page(rows_of("a-study", cells), tmp_path / "study.html").read_text()
    [found] = in_page(page, "FIGURES")["infer"]["map: fastest level"].values()  # type: ignore[index]
    grey, won = found["data"]
    assert won["text"] == [["cudnn<br>0.25", "libtorch<br>0.50<br>unclear", "eager<br>1.00", ""]]
    assert won["z"] == [[2, 1, 0, None]]
    assert won["colorbar"]["ticktext"] == list(levels)
    assert grey["text"][0][3] == "skip"


def test_what_has_too_few_rounds_is_pale_and_hollow_in_the_page(tmp_path: Path) -> None:
    levels = ("eager", "cudnn")
    asked = {rounds: cell(rounds, 32, levels) for rounds in (1, 3, 12)}
    cells = [
        measured(
            one, [run(one, v, t, t, rounds=n) for v, t in zip(levels, (1.0, 0.5), strict=True)]
        )
        for n, one in asked.items()
    ]
    rows = rows_of("a-study", cells)
    page = write_page(rows, tmp_path / "study.html").read_text()
    shown = in_page(page, "FIGURES")["infer"]  # type: ignore[index]
    pale, numbers = shown["map: ratio to eager"]["cudnn"]["data"]
    assert pale["text"][0][:2] == ["0.50<br>unclear", "0.50<br>unclear"]
    assert pale["z"][0] == [1, 1, 0]
    assert numbers["z"][0][:2] == [None, None] and numbers["text"][0] == ["", "", "0.50"]
    lines = shown["lines: time per sample over batch"]["resolution 32"]
    assert lines["layout"]["title"]["text"].endswith("hollow: fewer than 5 rounds")
    hollow, line, *_ = lines["data"]
    assert hollow["marker"]["symbol"] == "circle-open" and hollow["mode"] == "markers"
    assert [y is None for y in hollow["y"]] == [False, False, True]
    assert [y is None for y in line["y"]] == [True, True, False]
    assert any("3 rounds: too few for a conclusion" in text for text in in_page(page, "HOVER"))  # type: ignore[attr-defined]


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(studies())
def test_no_study_breaks_the_page(
    tmp_path_factory: pytest.TempPathFactory, rows: list[StudyRow]
) -> None:
    page = write_page(rows, tmp_path_factory.mktemp("page") / "study.html", PAPER).read_text()
    assert page.count("</script>") == 2
    found = in_page(page, "FIGURES")
    assert isinstance(found, dict) and len(found) == len(planes(rows))
    hover = in_page(page, "HOVER")
    assert not any("</script>" in text for text in hover)  # type: ignore[union-attr]


def test_a_name_does_not_end_the_script_that_it_stands_in(tmp_path: Path) -> None:
    asked = cell(8, 8, ("eager",), model="</script><b>.py:Net")
    rows = rows_of("</title>", [measured(asked, [run(asked, "eager", 1.0, 1.0)])])
    page = write_page(rows, tmp_path / "study.html").read_text()
    assert page.count("</script>") == 2 and "<h1>golow study &lt;/title&gt;</h1>" in page
    assert "</script><b>.py:Net" in in_page(page, "CAPTIONS")["infer"][0]  # type: ignore[index]


def test_without_plotly_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(GolowError) as told:
        write_page(rows_of("a-study", SMALL), tmp_path / "study.html")
    assert "golow[interactive]" in told.value.hint
