"""A study whose cells are load tests."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

import golow
from golow.commands.study import study_app
from golow.programs.study.cells import cells, key
from golow.programs.study.file import read_study
from golow.programs.study.store import StudyFolder, to_toml
from golow.programs.study.study_record import StudyLoad, asks
from golow.records.errors import GolowError

STUDY = """\
name = "under-load"
model = "mlp"
levels = ["eager", "direct"]
batch = [1, 4]
threads = 1
[load]
rate = 50
contexts = [1, 2]
latency = 1.0
percentile = 90.0
seconds = 0.2
repeats = 1
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "study.toml"
    file.write_text(text)
    return file


def test_a_study_under_load_is_read_and_written(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, STUDY))
    assert study.load == StudyLoad(
        rate=(50.0,), contexts=(1, 2), latency=1.0, percentile=90.0, seconds=0.2, repeats=1
    )
    assert read_study(written(tmp_path, to_toml(study))) == study
    asked = cells(study, 2)
    assert [(cell.batch, cell.load) for cell in asked] == [(1, study.load), (4, study.load)]
    assert all(asks(study, cell) for cell in asked)


def test_another_rate_is_another_cell_and_no_load_changes_no_key(tmp_path: Path) -> None:
    study = read_study(written(tmp_path, STUDY))
    assert study.load is not None
    faster = msgspec.structs.replace(study, load=msgspec.structs.replace(study.load, rate=(60.0,)))
    plain = msgspec.structs.replace(study, load=None)
    keys = {key(cells(one, 2)[0]) for one in (study, faster, plain)}
    assert len(keys) == 3
    assert not asks(faster, cells(study, 2)[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("rate = 50", "rat = 50"), "line 7: a study has no key load.rat"),
        (("rate = 50\n", ""), "rate"),
        (("rate = 50", "rate = 0"), "must be from 0.001 to"),
        (("contexts = [1, 2]", "contexts = [0]"), "must be from 1 to"),
        (('"direct"]', '"eager:float64"]'), "line 3: eager:float64 cannot be called"),
        (("[load]", 'mode = "train"\n[load]'), "a load test runs inference"),
    ],
)
def test_a_mistake_names_its_line(change: tuple[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(GolowError, match=words):
        read_study(written(tmp_path, STUDY.replace(*change)))


@pytest.mark.slow
@pytest.mark.usefixtures("forked_commands")
def test_a_study_under_load_is_measured_shown_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen")
    monkeypatch.chdir(tmp_path)
    one = STUDY.replace("[1, 4]", "[2]").replace('["eager", "direct"]', '["eager"]')
    result = golow.run_study(written(tmp_path, one), out=tmp_path, quiet=True)
    [record] = result.records.values()
    assert record.state == "done", record.reason
    [(cell, test)] = result.load_tests()
    assert test.plan.most == cell.batch == 2
    assert [level.label for level in test.levels] == ["eager", "eager x2"]
    assert all(level.check.verdict == "match" for level in test.levels)
    shown = CliRunner().invoke(study_app, ["show", "under-load", "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "eager x2" in shown.output
    assert "held" in shown.output
    exported = CliRunner().invoke(study_app, ["export", "under-load", "--out", str(tmp_path)])
    assert exported.exit_code == 0, exported.output
    with (tmp_path / "under-load.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["level"], row["max_batch"]) for row in rows} == {("eager", "2"), ("eager x2", "2")}
    with pytest.raises(GolowError, match="are load tests, not comparisons"):
        StudyFolder(result.folder).comparison(record)
    again = golow.run_study(tmp_path / "study.toml", out=tmp_path, quiet=True)
    assert again.records == result.records
