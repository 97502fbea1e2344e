"""What is saved is read back; what is half, foreign, newer or unlike is refused with its reason."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import golow
from golow.api import Result
from golow.programs.comparison import store
from golow.records.comparison import (
    Block,
    Check,
    Quantity,
)
from golow.records.errors import GolowError
from golow.records.record import FORMAT_VERSION
from support.examples import examples
from support.records.comparisons import comparison, run

# ---------------------------------------------------------------- there and back


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    saved = comparison()
    folder = store.save(saved, tmp_path / "runs")
    assert folder == tmp_path / "runs" / saved.id
    assert {file.name for file in folder.iterdir()} == {
        "comparison.json",
        "eager.json",
        "compile-freezing.json",
        "runs.csv",
    }
    assert golow.load(folder).comparison == saved
    assert golow.load(folder / "comparison.json").comparison == saved
    store.save(saved, tmp_path / "runs")  # once more is no fault
    assert golow.load(folder).comparison == saved


def test_two_comparisons_of_one_second_are_both_kept(tmp_path: Path) -> None:
    first, second = comparison(), comparison(notes=("another one",))
    assert first.id == second.id
    folders = [store.save(each, tmp_path) for each in (first, second, second)]
    assert [folder.name for folder in folders] == [first.id, f"{first.id}-2", f"{first.id}-2"]
    assert golow.load(folders[0]).comparison == first
    found = golow.load(folders[1]).comparison
    assert (found.id, found.notes) == (f"{first.id}-2", second.notes)
    assert [run.id for run in found.runs] == [
        run.id.replace(first.id, found.id) for run in second.runs
    ]


errors = st.floats(min_value=0, allow_infinity=False)
seconds = st.floats(0, 1e6)
samples = st.lists(st.integers(1, 2**62), max_size=5).map(tuple)


@given(
    st.floats(min_value=0, allow_infinity=False),
    seconds,
    samples,
    st.none() | st.floats(0, 5),
    st.text(),
)
@examples(30)
def test_every_figure_comes_back_as_it_was(
    error: float, value: float, host_ns: tuple[int, ...], wait_share: float | None, text: str
) -> None:
    """To the last digit, and whatever the reason is written in."""
    text = text.encode(errors="replace").decode()  # what JSON can hold
    changed = msgspec.structs.replace(
        run(error=error),
        time=Quantity(name="time", unit="s", value=value),
        blocks=(Block(round=0, position=1, host_ns=host_ns, wait_share=wait_share),),
        log=text,
    )
    with TemporaryDirectory() as folder:
        saved = store.save(comparison(changed), Path(folder))
        assert store.load(saved).runs == (changed,)


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_a_level_that_gave_no_numbers_is_read_back(tmp_path: Path, error: float) -> None:
    """JSON has no NaN."""
    read = store.load(store.save(comparison(run("nan", "differs", error=error)), tmp_path))
    worst = read.runs[0].check.worst
    assert worst is not None
    assert math.isnan(worst.error)
    assert math.isnan(read.runs[0].check.tensors[0].error)
    assert not worst.passed


def test_an_eager_that_gave_no_numbers_is_read_back(tmp_path: Path) -> None:
    good = run("onednn")
    assert good.check.worst is not None
    worst = msgspec.structs.replace(good.check.worst, eager_error=math.nan)
    good = msgspec.structs.replace(good, check=Check(verdict="match", worst=worst))
    read = store.load(store.save(comparison(good), tmp_path)).runs[0].check.worst
    assert read is not None
    assert math.isnan(read.eager_error)


def test_rows_and_csv(tmp_path: Path) -> None:
    """A flat row a run; what was not had is empty."""
    failed = msgspec.structs.replace(
        run("compile", "failed", blocks=0),
        check=Check(verdict="failed", reason='died, "suddenly"'),
        time=None,
        ratio=None,
        memory=(),
        life=(),
        payback_iterations=None,
    )
    made = comparison(run(), failed)
    rows = store.to_rows(made)
    assert [row["level"] for row in rows] == ["eager", "compile"]
    assert rows[0]["time"] == 0.041
    assert (rows[0]["ratio_low"], rows[0]["word"]) == (0.88, "faster")
    assert (rows[0]["input"], rows[0]["resident"], rows[0]["build"]) == ("3x64x64", 5.0e8, 12.5)
    assert rows[1]["time"] is None
    with (store.save(made, tmp_path) / "runs.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert read[0]["payback_iterations"] == "3400.5"
    assert read[1]["reason"] == 'died, "suddenly"'
    assert read[1]["time"] == read[1]["resident"] == ""
    frame = Result(made).to_pandas()
    assert list(frame["level"]) == ["eager", "compile"]
    assert frame["ratio"].isna().tolist() == [False, True]


# ---------------------------------------------------------------- what cannot be read


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return store.save(comparison(), tmp_path)


def refusal(folder: Path) -> GolowError:
    with pytest.raises(GolowError) as raised:
        store.load(folder)
    return raised.value


def test_there_is_no_comparison(tmp_path: Path) -> None:
    assert f"there is no comparison in {tmp_path}" in refusal(tmp_path).message
    assert "golow compare" in refusal(tmp_path / "nothing").hint


@pytest.mark.parametrize("name", ["comparison.json", "eager.json"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_file_that_was_cut_off(saved: Path, name: str, share: float) -> None:
    data = (saved / name).read_bytes()
    (saved / name).write_bytes(data[: int(share * (len(data) - 2))])
    assert f"{saved / name} cannot be read" in refusal(saved).message
    assert refusal(saved).hint == "it may be truncated."


def test_a_runs_file_is_missing(saved: Path) -> None:
    (saved / "eager.json").unlink()
    assert f"there is no file {saved / 'eager.json'}" in refusal(saved).message


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("comparison.json", {"files": []}, "it has no runs"),
        ("comparison.json", {"files": 7}, "Expected `array`, got `int`"),
        ("comparison.json", {"files": ["../eager.json"]}, "not names in its folder"),
        ("eager.json", {"check": []}, "Expected `object`, got `array`"),
        ("eager.json", {"check": {"tensors": 7}}, "Expected `array`, got `int`"),
        ("eager.json", {"level": "\x1b[31m"}, "is not a name"),
        ("eager.json", {"level": "../../x"}, "is not a name"),
        ("comparison.json", {"id": "../../x"}, "is not a folder name"),
        ("comparison.json", {"id": "/tmp/x"}, "is not a folder name"),
        ("eager.json", {"time": None}, "has a ratio, but a time is missing"),
    ],
)
def test_fields_that_make_no_record(
    saved: Path, name: str, fields: dict[str, object], words: str
) -> None:
    data = json.loads((saved / name).read_text())
    (saved / name).write_text(json.dumps(data | fields))
    assert words in refusal(saved).message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: [data], "cannot be read"),
        (lambda data: data | {"format_version": FORMAT_VERSION + 1}, "golow reads versions up to"),
        (lambda data: {"mine": 1}, "is not a golow record"),
        (lambda data: data | {"format_version": "1"}, "is not a golow record"),
        (
            lambda data: data | {"format_version": 0},
            "format version 0, which golow no longer reads",
        ),
        (lambda data: data | {"workload": 7}, "is not a comparison"),
        (lambda data: data | {"race": {}}, "is not a comparison"),
    ],
)
def test_what_is_not_ours_or_not_yet(
    saved: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    file = saved / "comparison.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    assert str(file) in refusal(saved).message
    assert message in refusal(saved).message


def test_a_newer_run_says_what_to_do(saved: Path) -> None:
    file = saved / "eager.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format_version": 99}))
    assert "format version 99" in refusal(saved).message
    assert "pip install --upgrade golow" in refusal(saved).hint


def test_an_older_version_is_brought_up(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that called the level a backend; each file is brought up on its own."""
    expected = store.load(saved)
    for file in saved.glob("*.json"):
        data = json.loads(file.read_text()) | {"format_version": FORMAT_VERSION - 1}
        if "level" in data:
            data["backend"] = data.pop("level")
        file.write_text(json.dumps(data))

    def upgrade(data: dict[str, Any]) -> dict[str, Any]:
        return data | ({"level": data["backend"]} if "backend" in data else {})

    monkeypatch.setitem(store.UPGRADES, FORMAT_VERSION - 1, upgrade)
    assert store.load(saved) == expected


def test_a_later_golows_additions_are_no_fault(saved: Path) -> None:
    """Fields that this version does not know, of the same format."""
    file = saved / "eager.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"energy": 3}))
    assert store.load(saved) == comparison()
