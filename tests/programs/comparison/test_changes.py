"""Two records as one table, a folder of records as a list, the gate, and the other formats."""

from __future__ import annotations

import csv
import io
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from golow import cli
from golow.api import Result
from golow.measure.environment import environment
from golow.programs.comparison import store
from golow.programs.comparison.changes import changes, parsed_limit, slower_than
from golow.records.comparison import (
    Block,
    Check,
    Comparison,
    Conditions,
    Quantity,
    RaceSummary,
    Ratio,
    Run,
)
from golow.records.errors import GolowError
from golow.records.workload import ModelSource, TensorType, Workload
from golow.report.comparison.changes import gate_text, render_changes
from golow.report.comparison.formats import document
from golow.report.comparison.table import render
from golow.report.notebook import as_html
from golow.report.study.rows import StudyRow
from golow.report.study.table import render as render_grid
from support.examples import examples

WORKLOAD = Workload(
    model="resnet50",
    source=ModelSource(kind="zoo", name="resnet50"),
    mode="infer",
    batch=8,
    inputs=(TensorType(shape=(8, 3, 64, 64), dtype="float32"),),
)
MACHINE = environment()


def run(level: str, seconds: float, noise: float = 0.01, rounds: int = 12, seed: int = 0) -> Run:
    """A level that takes so long, with this noise from round to round."""
    drawn = np.random.default_rng(seed)
    times = seconds * (1 + noise * drawn.standard_normal(rounds))
    blocks = tuple(
        Block(round=i, position=0, host_ns=(int(time * 1e9),)) for i, time in enumerate(times)
    )
    return Run(
        format_version=1,
        id=level,
        created="",
        level=level,
        workload=WORKLOAD,
        check=Check(verdict="match"),
        environment=MACHINE,
        conditions=Conditions(threads=1, affinity=(0,), precision="default", wait_policy=""),
        blocks=blocks,
        time=Quantity(name="time", unit="s", value=seconds, low=seconds, high=seconds),
        ratio=Ratio(value=1.0, low=1.0, high=1.0, word="same"),
    )


def comparison(*runs: Run, name: str = "c", model: str = "resnet50") -> Comparison:
    race = RaceSummary(
        rounds=12,
        seed=0,
        stopped_because="interval",
        interval_target=0.02,
        seconds=30.0,
        contended_share=0.0,
    )
    workload = msgspec.structs.replace(WORKLOAD, model=model)
    return Comparison(
        format_version=1, id=name, created="", workload=workload, race=race, runs=runs
    )


BEFORE = comparison(run("eager", 0.04), run("libtorch", 0.02), name="first")


def golow(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit status of the command."""
    monkeypatch.setattr(sys, "argv", ["golow", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return int(end.value.code or 0)


# ---------------------------------------------------------------- changes and the gate


def test_a_planted_slowdown_closes_the_gate_and_names_the_level() -> None:
    after = comparison(run("eager", 0.04, seed=1), run("libtorch", 0.023, seed=2))
    found = changes(BEFORE, after)
    assert [one.level for one in slower_than(found, 0.05)] == ["libtorch"]
    line = gate_text(found, 0.05)
    assert line.startswith("gate: failed: slower by more than 5%: libtorch by +1")
    assert "\n" not in line
    assert not slower_than(found, 0.30)


def test_what_is_unclear_closes_no_gate() -> None:
    for after in (
        run("libtorch", 0.023, noise=0.5, seed=3),  # noisy
        run("libtorch", 0.023, rounds=3),  # too few rounds
    ):
        found = changes(BEFORE, comparison(after))
        assert not slower_than(found, 0.05)
        assert gate_text(found, 0.05).startswith("gate: passed")


@examples(30)
@given(st.integers(0, 2**20))
def test_equal_levels_never_close_a_gate_of_5_percent(seed: int) -> None:
    found = changes(BEFORE, comparison(run("libtorch", 0.02, noise=0.02, seed=seed)))
    assert not slower_than(found, 0.05)


@pytest.mark.parametrize("text", ["", "five", "0", "-5%", "0.5%", "nan", "inf"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(GolowError, match="fail_above"):
        parsed_limit(text)
    assert parsed_limit("5%") == parsed_limit("0.05") == pytest.approx(0.05)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_changes_fit_and_carry_intervals(width: int) -> None:
    text = io.StringIO()
    after = comparison(run("libtorch", 0.03, seed=1), run("onednn", 0.01), name="second")
    render_changes(BEFORE, after, Console(file=text, width=width))
    shown = text.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert "\u2026" not in shown
    assert "slower" in shown
    assert "% to +" in " ".join(shown.split())
    assert "only before: eager" in shown
    assert "only after: onednn" in shown


def test_show_lists_a_folder_of_records_and_compares_two(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = store.save(BEFORE, tmp_path)
    second = store.save(comparison(run("libtorch", 0.03, seed=1), name="second"), tmp_path)
    (tmp_path / "not a record").mkdir()
    assert golow(monkeypatch, "show", str(tmp_path)) == 0
    listed = capsys.readouterr().out
    assert "first" in listed and "second" in listed and "not a record" not in listed
    assert golow(monkeypatch, "show", str(first), str(second)) == 0
    shown = capsys.readouterr().out
    assert "change" in shown and "slower" in shown


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_compare_against_a_baseline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A real comparison; then baselines that took half and twice as long."""
    arguments = ["compare", "lenet5", "--levels", "eager", "--threads", "1", "--time-limit", "1"]
    arguments += ["--out", str(tmp_path)]
    assert golow(monkeypatch, *arguments) == 0
    [folder] = [path for path in tmp_path.iterdir() if path.is_dir()]
    real = store.load(folder)
    for name, factor in (("half", 0.5), ("twice", 2.0)):
        store.save(_scaled(real, factor, name), tmp_path)
    for name, status in (("half", 1), ("twice", 0)):
        capsys.readouterr()
        gate = ["--against", str(tmp_path / name), "--fail-above", "5%"]
        assert golow(monkeypatch, *arguments, *gate) == status
        last = capsys.readouterr().out.strip().splitlines()[-1]
        assert last.startswith("gate: failed: slower" if status else "gate: passed: no level")
    assert golow(monkeypatch, *arguments, "--fail-above", "5%") == 2
    assert "--against" in capsys.readouterr().err


def _scaled(real: Comparison, factor: float, name: str) -> Comparison:
    """The comparison as if its levels had taken this much of their time."""
    runs = [
        msgspec.structs.replace(
            run,
            blocks=tuple(
                msgspec.structs.replace(b, host_ns=tuple(int(ns * factor) for ns in b.host_ns))
                for b in run.blocks
            ),
        )
        for run in real.runs
    ]
    return msgspec.structs.replace(real, runs=tuple(runs), id=name)


# ---------------------------------------------------------------- formats

HOSTILE = "<script>alert(1)</script>|`x` **b** [l](http://h) \x1b[31m& =1+1 @all ~~s~~"


class Tags(HTMLParser):
    """Collects the tags and the text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_shows_hostile_names_as_text() -> None:
    hostile = comparison(run("eager", 0.04), run(HOSTILE.replace("\x1b", ""), 0.04), model=HOSTILE)
    page = Tags()
    page.feed(document(hostile, "html"))
    table = {"div", "p", "b", "br", "small", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.tags <= table
    assert "<script>alert(1)</script>|`x`" in page.text
    assert "\x1b" not in page.text


def test_html_has_words_to_the_left_and_numbers_to_the_right() -> None:
    """Also in a page without a style sheet, as a notebook's is elsewhere."""
    shown = comparison(run("eager", 0.04), run("onednn", 0.02))
    page = Result(shown)._repr_html_()
    for line in re.findall("<tr>.*?</tr>", page):
        sides = re.findall("text-align:(left|right)", line)
        assert sides[:2] == ["left"] * 2 and set(sides[2:]) == {"right"}


def test_markdown_keeps_its_columns_whatever_a_name_holds() -> None:
    hostile = comparison(run("eager", 0.04), run(HOSTILE.replace("\x1b", ""), 0.04), model=HOSTILE)
    text = document(hostile, "markdown", ["time", "throughput"])
    assert "<script" not in text and "\x1b" not in text and "http://" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    bars = {line.replace("\\|", "").count("|") for line in rows}
    assert bars == {5}
    assert all(mark not in text for mark in (" **b**", " `x`", " [l]("))


def test_csv_is_for_spreadsheets_and_has_the_throughput() -> None:
    [row] = list(csv.DictReader(io.StringIO(document(comparison(run("eager", 0.04)), "csv"))))
    assert float(row["throughput"]) == pytest.approx(200)
    assert row["throughput_unit"] == "images/s"
    assert float(row["p50"]) == pytest.approx(0.04, rel=0.05)


def test_a_notebook_shows_hostile_names_as_text() -> None:
    hostile = comparison(run("eager", 0.04), model=HOSTILE)
    page = Tags()
    page.feed(Result(hostile)._repr_html_())
    page.feed(as_html(lambda console: render(hostile, console)))
    assert "script" not in page.tags
    assert "table" in page.tags and "pre" in page.tags


def test_a_study_marks_what_is_unclear_in_text() -> None:
    rows = [
        StudyRow(
            study="s",
            cell=f"{batch}",
            environment="here",
            model="mlp",
            mode="infer",
            device="cpu",
            precision="default",
            threads=1,
            batch=batch,
            resolution=8,
            level=level,
            state="done",
            verdict="match",
            outcome="match",
            reason="",
            created="",
            cell_seconds=1.0,
            time=1.0,
            ratio=ratio,
            word=word,
        )
        for batch in (1, 4)
        for level, ratio, word in (
            ("eager", 1.0, "same"),
            ("libtorch", 0.61, "unclear" if batch == 1 else "faster"),
        )
    ]
    text = io.StringIO()
    render_grid(rows, Console(file=text, width=80))
    assert text.getvalue().count("0.61?") == 1
    assert "?: unclear" in text.getvalue()


def test_a_format_or_column_that_is_none_is_refused() -> None:
    with pytest.raises(GolowError, match="no format 'pdf'"):
        document(BEFORE, "pdf")
    with pytest.raises(GolowError, match="no column 'x'"):
        document(BEFORE, "html", ["x"])
