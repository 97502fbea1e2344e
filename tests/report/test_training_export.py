"""A training's rows: an epoch or a run each, in CSV, JSON and pandas."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import msgspec
import pandas
import pytest
from hypothesis import given

from golow.programs.training.training_record import CurveVerdict, Training
from golow.report.training.export import epoch_rows, run_rows, write_export
from golow.storage.spreadsheet import to_csv
from support.examples import examples
from support.places import ROOT
from support.records.drawn_trainings import TWO_SEEDS, epoch, run, training, trainings


def test_a_row_an_epoch() -> None:
    rows = epoch_rows(TWO_SEEDS)
    assert len(rows) == 5
    third = rows[2]
    assert (third["level"], third["seed"], third["epoch"]) == ("eager", 0, 3)
    assert (third["train_loss"], third["eval_accuracy"]) == (1.0, 0.8)
    assert third["elapsed_train_seconds"] == 38
    assert (third["energy"], third["resident"], third["checksum"]) == (3000.0, 2.0**30 + 3, 1234)


def test_a_row_a_run() -> None:
    lost = run("cudnn", failure="out of memory")
    word = CurveVerdict(level="cudnn", initialisation="default", word="unclear", reason="")
    shown = msgspec.structs.replace(TWO_SEEDS, runs=(*TWO_SEEDS.runs, lost), verdicts=(word,))
    first, second, third = run_rows(shown)
    assert (first["final_eval_accuracy"], first["best_eval_accuracy"]) == (0.8, 0.8)
    assert (second["best_eval_accuracy"], second["best_epoch"], second["epochs"]) == (0.9, 2, 2)
    assert first["train_seconds"] == 38
    assert first["train_sample_seconds"] == pytest.approx(10 / 60_000)
    assert first["energy"] == 6000
    assert (first["resident"], first["ready"]) == (2.0**30 + 3, 1.5)
    assert (third["curves"], third["failure"], third["epochs"]) == ("unclear", "out of memory", 0)
    assert third["final_eval_accuracy"] is None
    assert first.keys() == second.keys() == third.keys()


def test_csv_json_and_pandas_have_the_same_numbers(tmp_path: Path) -> None:
    shown = training([run("eager", [epoch(1, (1, math.nan)), epoch(2, accuracy=None)])])
    files = {file.name: file for file in write_export(shown, tmp_path)}
    assert set(files) == {"runs.csv", "runs.json", "epochs.csv", "epochs.json"}
    read = list(csv.DictReader(files["epochs.csv"].open()))
    assert [row["train_loss"] for row in read] == ["nan", "0.375"]
    assert [row["eval_accuracy"] for row in read] == ["0.9", ""]
    decoded = json.loads(files["epochs.json"].read_text())
    assert [row["train_loss"] for row in decoded] == [None, 0.375]
    frame = pandas.DataFrame(epoch_rows(shown))
    back = pandas.read_csv(io.StringIO(to_csv(epoch_rows(shown))))
    pandas.testing.assert_frame_equal(frame, back, check_dtype=False)


@examples(25)
@given(trainings())
def test_every_record_has_rows_of_equal_columns(shown: Training) -> None:
    for rows in (epoch_rows(shown), run_rows(shown)):
        assert len({tuple(row) for row in rows}) <= 1
        assert len(list(csv.DictReader(io.StringIO(to_csv(rows))))) == len(rows)
    assert len(run_rows(shown)) == len(shown.runs)


def test_the_page_names_every_column_and_no_other() -> None:
    page = (ROOT / "docs" / "use" / "figures.md").read_text()
    bare = msgspec.structs.replace(run("eager", [msgspec.structs.replace(
        epoch(1), memory=(), device=())]), life=())  # fmt: skip
    for title, rows in (("epochs", epoch_rows), ("runs", run_rows)):
        section = page.split(f"### `{title}.csv`")[1].split("\n#")[0]
        cells = re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE)
        named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
        assert named == list(rows(training([bare]))[0])
