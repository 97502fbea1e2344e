"""The interactive page of a study has every number, and asks the network for nothing."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from drawn_studies import SMALL, cell, measured, run, small, studies
from golow.record import GolowError
from golow.report.published import levental2020_grid
from golow.report.study.interactive import write_page
from golow.report.study.planes import planes
from golow.report.study.rows import StudyRow, rows_of

PAPER = levental2020_grid()


def in_page(page: str, name: str) -> object:
    [found] = re.findall(rf"^const {name} = (.*);$", page, re.MULTILINE)
    return json.loads(found)


def test_the_page_has_every_number_and_asks_the_network_for_nothing(tmp_path: Path) -> None:
    page = write_page(rows_of("a-study", SMALL), tmp_path / "study.html", PAPER).read_text()
    shown = in_page(page, "FIGURES")["train"]  # type: ignore[index]
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
