"""Names of files that are made of names of models, levels and records."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import nn

import golow
from golow.report.page.file import write_page
from golow.report.style import save_figure
from golow.storage.names import LONGEST_NAME, file_name, is_plain_name, shortened
from support.command import golow as run_golow
from support.examples import examples


def test_a_short_name_stays() -> None:
    assert shortened("a" * LONGEST_NAME) == "a" * LONGEST_NAME
    assert file_name("confusion-libtorch+x") == "confusion-libtorch+x"
    assert file_name("a/b: c") == "a-b-c"


def test_two_long_names_stay_two() -> None:
    one, other = shortened("a" * 300), shortened("a" * 300 + "b")
    assert one != other
    assert one.startswith("a" * 100)
    assert shortened("a" * 300) == one


@given(some.text(), some.integers(20, 255))
@examples(200)
def test_none_is_too_long_or_of_another_place(name: str, longest: int) -> None:
    found = file_name(name, longest)
    assert len(found.encode()) <= longest
    assert (Path("/place") / f"x{found}").parent == Path("/place")
    assert file_name(found, longest) == found


@pytest.mark.parametrize("letter", ["a", "é", "語", "🦉"])
def test_no_letter_is_cut(letter: str, tmp_path: Path) -> None:
    name = shortened(letter * 300)
    assert is_plain_name(name)
    assert len(name.encode()) > LONGEST_NAME - 4
    (tmp_path / name).touch()


# ---------------------------------------------------------------- records with long names

LONG = "N" + "e" * 254


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_model_with_a_long_name_is_compared_saved_and_shown(tmp_path: Path) -> None:
    model = type(LONG, (nn.Linear,), {})(4, 4).eval()
    result = golow.compare(
        model, torch.ones(2, 4), levels=["eager"], time_limit=0.1, threads=1, quiet=True
    )
    folder = result.save(tmp_path)
    assert len(folder.name.encode()) <= LONGEST_NAME
    assert golow.load(folder).comparison.workload.model == LONG
    assert result.report(tmp_path / "page.html").exists()
    assert run_golow("show", str(tmp_path / "page.html")).status == 0


def test_a_worker_with_a_long_name_is_refused_before_anything_runs(tmp_path: Path) -> None:
    end = run_golow(
        *("compare", "lenet5", "--levels", "eager", "--out", str(tmp_path)),
        *("--worker", f"{LONG}={sys.executable}"),
    )
    assert end.status == 2
    assert "choose a name of up to 100 letters" in " ".join(end.error.split())


def test_a_figure_of_a_long_level_has_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    [file] = save_figure(Figure(), tmp_path, f"confusion-{LONG}", ["svg"])
    assert file.exists()


def test_a_page_with_a_long_name_in_its_record_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_page("title", [], {f"0-{LONG}x": {"comparison.json": "{}"}}, page)
    end = run_golow("show", str(page))
    assert end.status == 2
    assert "File name too long" in end.error
