"""No worker gets a time for work that it does not do while it is timed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.api import Result
from golow.levels import ladder
from golow.measure import wall_time
from golow.records.workload import Mode
from support.places import SUPPORT
from support.plants.cheated_races import BELIEVED_ONCE, CHEATS, race

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]

PLANTED_LEVELS = SUPPORT / "plants" / "planted_levels.py"
# Others are planted by the selftest, whose test runs them in processes, too.
REFUTED: dict[Mode, tuple[str, ...]] = {
    "infer": ("stored", "stale-input", "last-node-missing", "lazy"),
    "train": ("one-sample", "stale-input", "skipped-update"),
}
PLANTED: dict[Mode, tuple[str, ...]] = {
    "infer": ("onednn-last-step-missing", "onednn-stale-input", "libtorch-stale-input"),
    "train": ("onednn-last-step-missing", "onednn-skipped-update", "libtorch-skipped-update"),
}


# ---------------------------------------------------------------- real processes


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of both modes: the program around a planted LibTorch network is compiled once."""
    return tmp_path_factory.mktemp("planted")


@pytest.fixture(scope="module", params=["infer", "train"])
def compared(request: pytest.FixtureRequest, cache: Path) -> Result:
    """One comparison in a mode: eager, all cheats, all levels with a fault, one that is honest."""
    mode: Mode = request.param
    cheats = {name: [sys.executable, str(CHEATS), name] for name in (*REFUTED[mode], "honest")}
    planted = {name: [sys.executable, str(PLANTED_LEVELS), name, str(cache)] for name in here(mode)}
    return golow.compare(
        nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8)),
        torch.randn(8, 32),
        mode=mode,
        threads=1,
        levels=["eager"],
        workers=cheats | planted,
        time_limit=5,
        cache=cache,
    )


def here(mode: Mode) -> list[str]:
    """The levels with a fault that can run on this machine."""
    levels = {name: ladder.choose(name.partition("-")[0], mode).level for name in PLANTED[mode]}
    return [name for name, level in levels.items() if level.probe().available]


def test_every_cheat_is_refuted(compared: Result) -> None:
    """By its results; it has no time, and so no advice."""
    mode = compared.comparison.workload.mode
    for name in REFUTED[mode]:
        run = compared.run(name)
        print(f"{name}: {run.check.verdict}: {run.check.reason}")
        assert run.check.verdict == "differs", name
        assert (run.time, run.ratio, run.blocks) == (None, None, ()), name
        assert "rounding explains" in run.check.reason, name


def test_a_fault_of_a_level_in_its_timed_iterations_is_found(compared: Result) -> None:
    """By the whole result that it hands over, before any race."""
    mode = compared.comparison.workload.mode
    for name in here(mode):
        run = compared.run(name)
        print(f"{name}: {run.check.verdict}: {run.check.reason}\n{run.log}")
        assert run.check.verdict == "differs"
        assert run.check.reason.startswith("while it is timed: 1/" if mode == "train" else "while")
        assert run.time is None


def test_who_is_honest_is_timed(compared: Result) -> None:
    for name in ("eager", "honest"):
        run = compared.run(name)
        assert run.check.verdict == "match", run.check.reason
        assert run.time is not None
        assert all(block.wall_ns > sum(block.host_ns) for block in run.blocks)


def beside_an_honest_one(cheat: str, seconds: float, cache: Path) -> Result:
    """A race of trainings that does not end before twice its limit."""
    return golow.compare(
        nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8)),
        torch.randn(32, 64),
        mode="train",
        threads=1,
        levels=["eager"],
        workers={name: [sys.executable, str(CHEATS), name] for name in (cheat, "honest")},
        time_limit=seconds,
        interval=0.0,
        cache=cache,
    )


def test_a_worker_that_stalls_to_hide_its_state_has_no_time(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race is cut in its block; who was timed honestly until then keeps a time."""
    monkeypatch.setattr(wall_time, "LEAST_SECONDS", 0.0)
    compared = beside_an_honest_one("stalling", 4, cache)
    stalling, honest = compared.run("stalling"), compared.run("honest")
    assert any("in the middle of a block of stalling" in note for note in compared.comparison.notes)
    assert stalling.check.verdict == "failed"
    assert "before what this level trained could be checked" in stalling.check.reason
    assert (stalling.time, stalling.blocks) == (None, ())
    assert honest.check.verdict == "match", honest.check.reason
    assert honest.time is not None


def test_honest_workers_have_a_time_when_eager_does_not_answer(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started again, and takes their steps; it may have none of its own."""
    monkeypatch.setattr(wall_time, "LEAST_SECONDS", 0.0)
    compared = beside_an_honest_one("stops-eager", 2, cache)
    assert any("in the middle of a block of eager" in note for note in compared.comparison.notes)
    honest = compared.run("honest")
    assert honest.check.verdict == "match", honest.check.reason
    assert honest.time is not None


@pytest.mark.parametrize("case", BELIEVED_ONCE)
def test_what_was_believed_once_has_no_time(case: str, cache: Path) -> None:
    """And an honest worker beside them has one."""
    compared = race(
        case, time_limit=12, cache=cache
    )  # too little shows in shorter ones on busy cores
    assert compared.run("honest").check.verdict == "match", compared.run("honest").check.reason
    assert compared.run("honest").time is not None
    for name, reason in BELIEVED_ONCE[case].reasons.items():
        run = compared.run(name)
        print(f"{name}: {run.check.verdict}: {run.check.reason}")
        assert run.check.verdict in ("differs", "failed"), name
        assert (run.time, run.ratio, run.blocks) == (None, None, ()), name
        assert re.search(reason, run.check.reason), name
