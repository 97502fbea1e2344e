"""Life cycles of real workers: their stages, what another batch size costs, and what fails."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow import api
from golow.programs.life.life_record import LevelLife, LifeCycle
from golow.records.errors import GolowError
from golow.worker.time_limits import Limits
from support.places import WORKERS
from support.processes import mentioning, soon
from support.workers.forked_workers import fork_commands

pytestmark = pytest.mark.slow

FAULTY = WORKERS / "faulty.py"

LEVELS = "eager,torchscript,onednn"


def plant(*options: str) -> list[str]:
    """golow's own worker of known cost and fault."""
    return [sys.executable, "-m", "golow.worker.plant", "--products", "1", *options]


def compared(
    tmp_path: Path,
    workers: dict[str, list[str]],
    observer: Until | None = None,
    *,
    cold: bool = True,
    limits: Limits | None = None,
) -> LifeCycle:
    """One round of lives of these workers beside eager."""
    torch.manual_seed(0)
    result = golow.compare(
        nn.Linear(64, 64, bias=False),
        torch.randn(8, 64),
        levels=["eager"],
        workers=workers,
        threads=1,
        time_limit=0.2,
        life=True,
        life_rounds=1,
        life_cold=cold,
        cache=tmp_path / "cache",
        limits=limits,
        observer=observer,
    )
    assert result.life is not None
    return result.life.cycle


class Until:
    """An observer that interrupts, as Ctrl-C does, when a stage begins whose text has that part."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.stages: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)
        if self.part in text:
            raise KeyboardInterrupt

    def race(self, rounds: int, seconds: float, limit: float, widest: float) -> None:
        """Nothing."""


@pytest.fixture
def nobody_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process and no temporary file outlives the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("GOLOW_TEST", str(folder))
    yield
    assert soon(lambda: mentioning(str(folder)) == [])
    # Torch keeps a folder of its own there once it has captured two sizes of one model.
    assert [file.name for file in folder.iterdir() if file.name.startswith("golow")] == []


# ---------------------------------------------------------------- the command, as it should be


@pytest.fixture(scope="module")
def done(forked: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What `golow compare --life` prints, and the folder of its record. oneDNN's workers and what
    captures are new interpreters, whose imports are part of their lives; PyTorch's are forked."""
    folder = tmp_path_factory.mktemp("life")
    command = [sys.executable, "-m", "golow", "compare", "mlp", "--levels", LEVELS]
    options = [
        "--life",
        "--life-rounds",
        "1",
        "--time-limit",
        "0.5",
        "--batch",
        "2",
        "--threads",
        "1",
    ]
    with pytest.MonkeyPatch.context() as patch:
        fork_commands(patch, "golow.levels.torch")
        ended = subprocess.run(
            [*command, *options, "--out", str(folder / "runs")],
            env={**os.environ, "GOLOW_CACHE": str(folder / "cache"), "COLUMNS": "100"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert "other batch size (9 of 9, about" in ended.stderr
    [record] = (folder / "runs").iterdir()
    return ended.stdout, record


@pytest.fixture(scope="module")
def levels(done: tuple[str, Path]) -> dict[str, LevelLife]:
    """The levels of the record, by name."""
    cycle = api.load_life(done[1]).cycle
    assert not cycle.interrupted
    return {level.level: level for level in cycle.levels}


def test_every_level_lives_with_both_caches(levels: dict[str, LevelLife]) -> None:
    if levels["onednn"].verdict == "unavailable":
        pytest.skip("oneDNN is not installed")
    assert list(levels) == LEVELS.split(",")
    for level in levels.values():
        assert (level.verdict, level.failed) == ("match", "")
        assert [(one.cache, one.round) for one in level.lives] == [("cold", 0), ("warm", 0)]
        for one in level.lives:
            assert all(one.seconds[stage] > 0 for stage in ("import", "load", "end"))
            assert one.seconds["first_iteration"] == one.iterations[0] / 1e9
            assert one.seconds["steady_iteration"] > 0
            assert len(one.iterations) > 20
            assert (one.figure("resident_peak") or 0) > 10**6


def test_what_is_captured_and_built_is_so_once(levels: dict[str, LevelLife]) -> None:
    cold, warm = levels["onednn"].lives
    assert cold.seconds["capture"] > cold.seconds["load"], "a process imports torch and captures"
    assert cold.seconds["build"] > 0
    assert (cold.figure("disk") or 0) > 0
    assert warm.seconds.get("capture", 0.0) == 0
    eager = levels["eager"].lives[0]
    assert (eager.seconds["capture"], eager.figure("disk")) == (0, 0)
    assert all(one.seconds["capture"] > 0 for one in levels["torchscript"].lives), "it traces anew"


def test_another_batch_size_has_its_price(levels: dict[str, LevelLife]) -> None:
    changes = {name: level.changes for name, level in levels.items()}
    assert all(len(found) == 1 and found[0].batch == 1 for found in changes.values())
    assert {name: found[0].same_process for name, found in changes.items()} == {
        "eager": True,
        "torchscript": True,
        "onednn": False,
    }
    for [change] in changes.values():
        assert 0 < change.seconds["first_iteration"] <= change.until_first <= change.until_settled
    assert "import" not in changes["eager"][0].seconds, "the process stays"
    assert changes["onednn"][0].seconds["import"] > 0


def test_the_record_is_printed_saved_and_shown(done: tuple[str, Path]) -> None:
    printed, record = done
    assert "life cycle of mlp, inference, batch 2, cpu" in printed
    assert max(map(len, printed.splitlines())) <= 100
    files = {file.name for file in record.iterdir()}
    assert {"comparison.json", "life.json", "life.csv", "life-totals.csv"} <= files
    shown = subprocess.run(
        [sys.executable, "-m", "golow", "show", str(record)],
        capture_output=True,
        text=True,
        check=True,
    )
    life = printed[printed.index("life cycle of") :].partition("record:")[0]
    assert life.rstrip() in shown.stdout


# ---------------------------------------------------------------- faults


@pytest.mark.usefixtures("nobody_left")
@pytest.mark.whole_network
def test_what_is_wrong_or_ends_badly_is_a_row_with_its_reason(tmp_path: Path) -> None:
    """A level that differs has no life; one that only differs later is found out in its life; one
    that does not end has no time of its end."""
    counter = tmp_path / "starts"
    later = f"echo >> {counter}; if [ $(wc -l < {counter}) -gt 1 ]; then s=1; else s=0; fi; exec "
    found = compared(
        tmp_path,
        {
            "good": plant(),
            "wrong": plant("--shift", "1"),
            "later": ["/bin/sh", "-c", f'{later}"$@" --shift $s', "sh", *plant()],
            "deaf": [sys.executable, str(FAULTY), "deaf"],
        },
        limits=Limits(quit=1.0),
    )
    levels = {level.level: level for level in found.levels}
    assert (levels["good"].failed, len(levels["good"].lives)) == ("", 2)
    assert levels["good"].changes[0].same_process
    wrong = levels["wrong"]
    assert (wrong.verdict, wrong.lives, wrong.failed) == ("differs", (), "")
    assert levels["later"].verdict == "match"
    assert levels["later"].lives == ()
    assert levels["later"].failed.startswith("cold life, check: differs: ")
    expected = "cold life, end: hung: it did not exit within 1 s of `quit`"
    assert (levels["deaf"].failed, levels["deaf"].lives) == (expected, ())


@pytest.mark.usefixtures("nobody_left", "forked")
def test_ctrl_c_keeps_the_lives_before_it(tmp_path: Path) -> None:
    watch = Until("warm life")
    with pytest.raises(golow.Interrupted) as raised:
        compared(tmp_path, {"good": plant()}, watch)
    assert raised.value.result.life is not None
    cycle = raised.value.result.life.cycle
    assert cycle.interrupted
    assert [[one.cache for one in level.lives] for level in cycle.levels] == [["cold"], ["cold"]]
    assert raised.value.result.save(tmp_path / "runs").joinpath("life.json").is_file()


@pytest.mark.whole_network
def test_without_cold_lives_nothing_is_built_and_no_batch_is_changed(tmp_path: Path) -> None:
    """As for a program whose build takes long; the comparison has left it in the cache."""
    watch = Until("nothing")
    found = compared(tmp_path, {}, watch, cold=False)
    [eager] = found.levels
    assert [one.cache for one in eager.lives] == ["warm"]
    assert (eager.changes, eager.change_missing) == ((), "")
    assert "preparing another batch size" not in watch.stages


@pytest.mark.whole_network
def test_a_program_without_python_has_the_same_stages(tmp_path: Path) -> None:
    """LibTorch's, whose imports are the libraries that the system loads; from a cached build."""
    result = golow.compare(
        "lenet5",
        levels=["libtorch"],
        batch=2,
        threads=1,
        time_limit=0.5,
        life=True,
        life_rounds=1,
        life_cold=False,
        cache=tmp_path / "cache",
    )
    assert result.life is not None
    eager, libtorch = result.life.cycle.levels
    if libtorch.verdict == "unavailable":
        pytest.skip(libtorch.reason)
    assert libtorch.failed == ""
    [life], [of_eager] = libtorch.lives, eager.lives
    assert life.seconds.keys() == of_eager.seconds.keys()
    assert all(life.seconds[stage] > 0 for stage in ("import", "load", "end"))
    assert (life.figure("artifact") or 0) > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_lives_on_a_gpu(tmp_path: Path) -> None:
    """A graph is captured at every start, and again for another batch; a setting is tried."""
    result = golow.compare(
        "lenet5",
        levels=["eager", "cudagraph", "cudnn"],
        device="cuda",
        time_limit=1.0,
        life=True,
        life_rounds=1,
        cache=tmp_path / "cache",
    )
    assert result.life is not None
    levels = {level.level: level for level in result.life.cycle.levels}
    for level in levels.values():
        assert (level.verdict, level.failed, level.change_missing) == ("match", "", "")
        settings = [one.setting for one in level.lives]
        assert settings == ["", "", "CUDA_MODULE_LOADING=EAGER"]
        assert level.lives[0].figure("device_used") or level.lives[0].figure("device_added")
    assert all(one.seconds["capture"] > 0 for one in levels["cudagraph"].lives)
    assert levels["cudagraph"].changes[0].same_process
    assert levels["cudagraph"].changes[0].seconds["capture"] > 0
    assert not levels["cudnn"].changes[0].same_process


@pytest.mark.parametrize("rounds", [0, 101])
def test_a_number_of_rounds_that_makes_no_sense(rounds: int) -> None:
    with pytest.raises(GolowError, match="is not a valid number of rounds"):
        golow.compare("lenet5", life=True, life_rounds=rounds)
