"""A record is data: what it names runs only if it is this user's own, or trusted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import golow
from golow.levels.level_selection import choices
from golow.programs.training import store as training_store
from golow.programs.training.data import TrainingData
from golow.programs.training.plan import make_plan
from golow.programs.training.request import TrainingRequest
from golow.records.errors import GolowError
from support.command import golow as run_golow
from support.records.training_subjects import digits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return digits(tmp_path_factory.mktemp("data"))


@pytest.fixture
def recorded(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Write the record of a training of that model which has not begun; it also names a worker."""
    monkeypatch.setenv("GOLOW_CACHE", str(data.train.parents[1]))

    def record(model: str, **workers: list[str]) -> Path:
        request = TrainingRequest(model=model, dataset="digits", threads=1, workers=workers)
        chosen = choices(["eager"], workers, "train", "cpu")
        return training_store.create(make_plan(request, data.facts, chosen), tmp_path)[1]

    return record


@pytest.fixture
def code(tmp_path: Path) -> str:
    """A model whose file leaves a mark when it is imported."""
    file = tmp_path / "net.py"
    file.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\nraise ValueError('it was imported')\n")
    return f"{file}:Net"


def test_nothing_runs_of_a_record_that_others_can_write(
    recorded: Callable[[str], Path], code: str, tmp_path: Path
) -> None:
    folder = recorded(code, mine=[sys.executable, "a script.py"])
    folder.chmod(0o777)
    end = run_golow("train", "--resume", str(folder))
    assert end.status == 2
    said = " ".join(end.error.split())
    assert f"others can write {folder}" in said
    assert f"model: {code}" in said
    assert f"worker mine: {sys.executable} 'a script.py'" in said
    assert f"golow train --resume {folder} --trust" in said
    assert f"chmod go-w {folder}" in said
    assert not (tmp_path / "mark").exists()
    with pytest.raises(GolowError, match="others can write"):
        golow.resume(folder, quiet=True)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("place", ["plan.json", ".."])
def test_its_file_and_the_folders_above_it_count(
    recorded: Callable[[str], Path], code: str, place: str
) -> None:
    folder = recorded(code)
    (folder / place).resolve().chmod(0o666 if place == "plan.json" else 0o777)
    with pytest.raises(GolowError, match="others can write"):
        golow.resume(folder, quiet=True)


def test_one_that_is_trusted_runs(
    recorded: Callable[[str], Path], code: str, tmp_path: Path
) -> None:
    folder = recorded(code)
    folder.chmod(0o777)
    with pytest.raises(GolowError, match="it was imported"):
        golow.resume(folder, trust=True, quiet=True)
    assert (tmp_path / "mark").exists()
    end = run_golow("train", "--resume", str(folder), "--trust")
    assert "it was imported" in end.error


def test_ones_own_runs(recorded: Callable[[str], Path], code: str) -> None:
    with pytest.raises(GolowError, match="it was imported"):
        golow.resume(recorded(code), quiet=True)


def test_one_without_code_is_only_data(recorded: Callable[[str], Path]) -> None:
    """It fails later, at the data set, which is another one."""
    folder = recorded("lenet5")
    folder.chmod(0o777)
    plan = json.loads((folder / "plan.json").read_bytes())
    plan["dataset"]["train_checksum"] = "00000000"
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(GolowError, match="the data set digits has changed"):
        golow.resume(folder, quiet=True)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a\0b", "x" * 300, "."])
@pytest.mark.parametrize("field", ["levels", "initialisations"])
def test_no_name_in_it_is_a_place(
    recorded: Callable[[str], Path], field: str, name: str, tmp_path: Path
) -> None:
    folder = recorded("lenet5")
    plan = training_store.read_plan(folder)
    changed = msgspec.structs.replace(plan, **{field: ("eager", name)})
    (folder / "plan.json").write_bytes(msgspec.json.encode(changed))
    before = sorted(tmp_path.rglob("*"))
    for command in (("show", str(folder)), ("report", str(folder), "--out", str(folder / "page"))):
        end = run_golow(*command)
        assert end.status == 2
        assert "is not a name" in end.error
    with pytest.raises(GolowError, match="is not a name"):
        golow.load_training(folder)
    with pytest.raises(GolowError, match="is not a name"):
        golow.resume(folder, quiet=True)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "change", [{"level": "../../x"}, {"initialisation": "/tmp/x"}, {"level": "libtorch"}]
)
def test_a_run_is_that_of_its_folder(
    recorded: Callable[[str], Path], change: dict[str, str]
) -> None:
    from golow.records.comparison import Check
    from support.records.drawn_trainings import WORKLOAD, TrainingRun

    folder = recorded("lenet5")
    plan = training_store.read_plan(folder)
    run = TrainingRun(
        level="eager",
        initialisation=plan.initialisations[0],
        seed=0,
        workload=WORKLOAD,
        check=Check(verdict="match"),
    )
    place = training_store.run_folder(folder, "eager", plan.initialisations[0], 0)
    place.write(run)
    assert training_store.load(folder).runs == (run,)
    place.write(msgspec.structs.replace(run, **change))
    with pytest.raises(GolowError, match="is not a record of this run"):
        golow.load_training(folder)
