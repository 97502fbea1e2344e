"""A study as a table: what was measured is there with its unit's number, whatever became of it."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import sys
from pathlib import Path

import msgspec
import pandas
import pytest
from hypothesis import HealthCheck, given

from golow.programs.study.store import StudyFolder
from golow.records.comparison import Block, GpuState, Quantity
from golow.records.errors import GolowError
from golow.report.study.export import WRITERS, columns, export, rows, to_pandas
from golow.report.study.rows import StudyRow, load, rows_of
from support.examples import examples
from support.places import ROOT
from support.records.drawn_studies import (
    CREATED,
    asking,
    cell,
    levental_like,
    measured,
    run,
    studies,
    unmeasured,
    write,
)

PAGE = ROOT / "docs" / "use" / "studies_export.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study on disk in which cells are done, skipped, failed and out of memory."""
    cells = levental_like((8, 64, 1024), (8, 1024), ("infer", "train"))
    return write(tmp_path_factory.mktemp("studies") / "levental-2020", cells)


# ---------------------------------------------------------------- the schema


def test_the_page_describes_every_column_in_order_with_its_type() -> None:
    table = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    words = {str: "text", int: "integer", float: "number", bool: "boolean"}
    assert table == [(name, words[kind]) for name, kind in columns().items()]


def test_the_page_names_every_value_of_a_column_that_has_few() -> None:
    page = PAGE.read_text()
    for name in ("outcome", "state", "verdict", "word"):
        [line] = re.findall(rf"^\| `{name}` .*$", page, re.MULTILINE)
        field = next(f for f in msgspec.structs.fields(StudyRow) if f.name == name)
        for value in re.findall(r"'([\w ]+)'", str(field.type)):
            assert f"`{value}`" in line


def test_columns_and_types_are_the_same_for_every_study(folder: Path, tmp_path: Path) -> None:
    asked = cell(8, None, ("eager",), model="mlp", device="cpu")
    other = write(tmp_path / "other", [unmeasured(asked, "skipped", "it needs 200 GiB")])
    first, second = to_pandas(folder), to_pandas(other)
    assert first.dtypes.to_dict() == second.dtypes.to_dict()
    assert list(first) == list(columns())
    assert second["time"].isna().all() and second["resolution"].isna().all()


def test_cells_that_the_study_no_longer_asks_for_are_left_out(tmp_path: Path) -> None:
    cells = [cell(batch, 32, ("eager",)) for batch in (8, 16)]
    there = [measured(one, [run(one, "eager", 1.0, 1.0)]) for one in cells]
    folder = write(tmp_path / "study", there)
    assert [row.batch for row in load(folder)] == [8, 16]
    StudyFolder(folder).write_study(asking("study", cells[1:]))
    assert [row.batch for row in load(folder)] == [16]


def test_the_newest_of_two_records_in_one_place_counts(tmp_path: Path) -> None:
    old, new = cell(8, 32, ("eager",)), cell(8, 32, ("eager", "libtorch"))
    first = measured(new, [run(new, level, 1.0, 1.0) for level in new.levels])
    second = measured(old, [run(old, "eager", 2.0, 1.0)])
    later = msgspec.structs.replace(first.record, created="2126-01-01T00:00:00+00:00")
    folder = write(tmp_path / "study", [first._replace(record=later), second])
    assert [(row.level, row.time) for row in load(folder)] == [("eager", 1.0), ("libtorch", 1.0)]


# ---------------------------------------------------------------- what stands in a row


def test_a_row_has_the_records_numbers() -> None:
    asked = cell(16, 64, ("eager", "cudnn"), threads=4)
    level = run(asked, "cudnn", 0.5, 0.25, half_width=0.1, memory=3e9, utilization=0.75)
    state = GpuState(
        clock_mhz=1500,
        memory_clock_mhz=2619,
        temperature_c=60,
        power_w=500.0,
        utilization_percent=99,
        other_processes=1,
    )
    more = Quantity(name="enqueue", unit="s", value=0.002)
    block = Block(round=1, position=0, host_ns=(1,), gpu=state)
    level = msgspec.structs.replace(
        level, blocks=(*level.blocks[:1], block), device=(*level.device, more)
    )
    [eager, row] = rows_of("a-study", [measured(asked, [run(asked, "eager", 2.0, 1.0), level])])
    assert (eager.level, eager.ratio, eager.word) == ("eager", 1.0, "same")
    assert (row.study, row.level, row.outcome, row.verdict) == (
        *("a-study", "cudnn", "measured", "match"),
    )
    assert (row.batch, row.resolution, row.threads, row.threads_used) == (16, 64, 4, 4)
    assert (row.time, row.sample_time) == (0.5, 0.5 / 16)
    assert (row.time_low, row.time_high) == pytest.approx((0.45, 0.55))
    assert (row.ratio_low, row.ratio, row.ratio_high) == pytest.approx((0.225, 0.25, 0.275))
    assert (row.device_used, row.utilization, row.energy, row.enqueue) == (3e9, 0.75, 1.5, 0.002)
    assert (row.clock_mhz, row.temperature_c, row.other_processes) == (1740, 60, 1)
    assert (row.rounds, row.build, row.artifact, row.input) == (2, 12.5, 1e8, "3x64x64")
    assert (row.cpu, row.gpu, row.torch, row.cudnn) == (
        *("AMD EPYC 9454", "NVIDIA H200", "2.11.0", "9.19.0"),
    )
    assert (row.created, row.cell_seconds, row.host) == (CREATED, 21.5, "node-1")


def test_what_became_of_a_level_is_one_word_with_its_reason() -> None:
    asked = [cell(batch, 8, ("eager", "libtorch")) for batch in range(1, 9)]

    def level(
        number: int, verdict: str, reason: str, seconds: float | None = None
    ) -> list[StudyRow]:
        one = asked[number]
        other = run(one, "libtorch", seconds, seconds, None, verdict, reason)  # type: ignore[arg-type]
        return rows_of("a", [measured(one, [run(one, "eager", 1.0, 1.0), other])])

    told = [
        level(0, "match", "", 0.5)[1],
        level(1, "failed", "out of memory: CUDA out of memory")[1],
        level(2, "failed", "it died: signal 11", 0.5)[1],
        level(3, "differs", "0/output/0 is off")[1],
        level(4, "unavailable", "no compiler")[1],
        level(5, "failed", "it was not reached")[1],
        *rows_of("a", [unmeasured(asked[6], "skipped", "it needs 200 GiB")]),
        *rows_of("a", [unmeasured(asked[7], "failed", "it took longer than 600 s")]),
    ]
    assert [row.outcome for row in told] == [
        *("measured", "out of memory", "failed", "differs", "unavailable", "not reached"),
        *("skipped", "skipped", "failed", "failed"),
    ]
    assert all(row.time is None and row.ratio is None for row in told[1:])
    assert [told[6].reason, told[6].verdict, told[6].level] == ["it needs 200 GiB", None, "eager"]
    assert (told[6].gpu, told[6].torch) == ("NVIDIA H200", "2.11.0")


def test_what_the_record_names_as_out_of_memory_is_so() -> None:
    asked = cell(8, 8, ("eager", "cudnn"))
    done = measured(asked, [run(asked, "eager", 1.0, 1.0)])
    record = msgspec.structs.replace(done.record, out_of_memory=("cudnn",))
    assert [row.outcome for row in rows_of("a", [done._replace(record=record)])] == [
        *("measured", "out of memory"),
    ]


def test_a_number_that_is_none_is_missing() -> None:
    asked = cell(8, 8, ("eager",))
    level = run(asked, "eager", math.nan, math.inf, memory=math.nan, half_width=math.nan)
    [row] = rows_of("a", [measured(asked, [level])])
    assert (row.time, row.time_low, row.ratio, row.device_used) == (None, None, None, None)


@examples(40, suppress_health_check=list(HealthCheck))
@given(studies())
def test_any_study_has_rows_that_json_takes(found: list[StudyRow]) -> None:
    for row in found:
        assert msgspec.json.decode(msgspec.json.encode(row), type=StudyRow) == row
    assert len({(row.environment, row.cell, row.level) for row in found}) == len(found)


# ---------------------------------------------------------------- files


def test_what_lies_on_disk_is_read_back_in_the_order_of_its_axes(folder: Path) -> None:
    found = rows(folder)
    assert len(found) == 2 * 3 * 2 * 4
    assert {row["outcome"] for row in found} >= {"measured", "skipped", "failed", "out of memory"}
    assert {row["study"] for row in found} == {"levental-2020"}
    places = [(row["mode"], row["resolution"], row["batch"]) for row in found]
    assert places == sorted(places)
    assert [row["level"] for row in found[:4]] == ["eager", "torchscript", "libtorch", "cudnn"]


def read_csv(text: str, kind: type) -> object:
    """The value that a cell of a CSV file stands for."""
    if text == "":
        return None
    return text == "True" if kind is bool else kind(text)


@pytest.mark.slow
def test_every_format_has_the_same_numbers(folder: Path, tmp_path: Path) -> None:
    found = rows(folder)
    files = {kind: export(folder, kind, tmp_path / "new" / f"a.{kind}") for kind in WRITERS}
    assert json.loads(files["json"].read_text()) == found
    frame = pandas.read_parquet(files["parquet"])
    pandas.testing.assert_frame_equal(frame, to_pandas(folder))
    assert [frame[name].dtype for name in ("level", "batch", "time", "build_cached")] == [
        *("string", "Int64", "Float64", "boolean"),
    ]
    assert frame.astype(object).where(frame.notna(), None).to_dict("records") == found
    with files["csv"].open(newline="") as file:
        lines = list(csv.DictReader(file))
    for row, line in zip(found, lines, strict=True):
        told = {name: read_csv(text, columns()[name]) for name, text in line.items()}
        assert told == {name: None if value == "" else value for name, value in row.items()}


def test_a_study_without_cells_is_a_table_without_rows(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty", [unmeasured(cell(), "skipped", "too large")])
    shutil.rmtree(empty / "cells")
    assert rows(empty) == []
    assert export(empty, "csv", tmp_path / "a.csv").read_text().split(",")[0] == "study"
    assert json.loads(export(empty, "json", tmp_path / "a.json").read_text()) == []
    assert list(pandas.read_parquet(export(empty, "parquet", tmp_path / "a.parquet"))) == [
        *columns()
    ]


def test_what_cannot_be_exported_is_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GolowError, match="cannot be exported as xlsx") as told:
        export(folder, "xlsx", tmp_path / "a.xlsx")
    assert told.value.hint == "use csv, json, parquet."
    with pytest.raises(GolowError, match="there is no study in"):
        rows(tmp_path)
    with pytest.raises(GolowError, match="cannot be written"):
        export(folder, "csv", folder / "study.toml" / "a.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GolowError, match="Parquet needs pyarrow"):
        export(folder, "parquet", tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(GolowError, match="pandas is not installed"):
        to_pandas(folder)
