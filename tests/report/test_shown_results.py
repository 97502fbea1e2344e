"""What a prompt and a notebook show of a result: one line, and the table."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import rich.console
import rich.jupyter

import golow
import golow.api
from golow.report.page.file import unpacked
from support.places import DOCS

REPORTS = DOCS / "reports"
NAMES = [name for name in golow.api.__all__ if inspect.isclass(getattr(golow.api, name))]
RESULTS = [name for name in NAMES if hasattr(getattr(golow.api, name), "table")]
# A record of each kind, in the pages of docs/reports, and what a prompt shows of it.
LINES = {
    "Result": "resnet50, inference, batch 1, 9 levels",
    "LifeResult": "resnet50, inference, batch 1, 9 levels",
    "ProfileResult": "resnet50, inference, batch 1, 3 profiles",
    "AuditResult": "resnet50, inference, batch 1, 2 levels",
    "TrainingResult": "lenet5 on digits, 4 levels, 1 seed",
}


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Any]]:
    """The records that the pages hold, by the class of the result."""
    with (
        unpacked(REPORTS / "resnet50.html") as [compared, profiled, audited],
        unpacked(REPORTS / "lenet5-digits.html") as [trained],
    ):
        found = [
            golow.load(compared),
            golow.load_life(compared),
            golow.load_profile(profiled),
            golow.load_audit(audited),
            golow.load_training(trained),
        ]
        yield {type(result).__name__: result for result in found}


@pytest.mark.parametrize("name", [*RESULTS, "StudyResult"])
def test_every_result_has_a_line_and_a_table(name: str) -> None:
    own = vars(getattr(golow.api, name))
    assert "__repr__" in own and "_repr_html_" in own


@pytest.mark.parametrize("name", LINES)
def test_a_prompt_shows_one_line(results: dict[str, Any], name: str) -> None:
    assert repr(results[name]) == f"<golow.{name}: {LINES[name]}>"


@pytest.mark.parametrize("name", LINES)
def test_a_notebook_shows_what_the_table_prints(
    results: dict[str, Any], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    results[name].table()
    printed = capsys.readouterr().out
    page = results[name]._repr_html_()
    for level in ("eager", "libtorch", "onednn"):
        assert (level in printed) == (level in page)
    assert "eager" in page


@pytest.mark.parametrize("name", LINES)
def test_a_notebook_shows_it_once(
    results: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rich displays what is printed in a notebook, also to a file."""
    shown: list[object] = []
    monkeypatch.setattr(rich.console, "_is_jupyter", lambda: True)
    monkeypatch.setattr(rich.jupyter, "display", lambda *given: shown.append(given))
    assert "eager" in results[name]._repr_html_()
    assert shown == []


def test_a_notebook_shows_the_life_of_a_comparison_as_well(results: dict[str, Any]) -> None:
    page, alone = results["Result"]._repr_html_(), results["Result"]._replace(life=None)
    assert "life cycle of resnet50" in page
    assert "life cycle of resnet50" not in alone._repr_html_()
