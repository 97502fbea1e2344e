"""A comparison ends in time when its cores are busy or a level stalls, with what was measured."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.measure import wall_time
from golow.records.comparison import Comparison
from support.places import WORKERS
from support.processes import spinning_on

pytestmark = [pytest.mark.usefixtures("forked"), pytest.mark.slow]

LIMIT = 3.0
GENEROUS = 60.0  # seconds: building and checking are not bounded, nor is this machine calm
IN_THE_RACE = "25", "10"  # iterations before the fault; milliseconds of each


def compared(tmp_path: Path, fault: str) -> Comparison:
    """A linear layer by eager and by a worker that gets that fault in the race."""
    torch.manual_seed(0)
    result = golow.compare(
        nn.Linear(64, 64, bias=False),
        torch.randn(8, 64),
        levels=["eager"],
        workers={"other": [sys.executable, str(WORKERS / "faulty.py"), fault, *IN_THE_RACE]},
        threads=1,
        interval=0.0,
        time_limit=LIMIT,
        cache=tmp_path,
        quiet=True,
    )
    return result.comparison


@pytest.fixture(autouse=True)
def no_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_time, "LEAST_SECONDS", 0.0)


def test_a_worker_that_becomes_fifty_times_slower_keeps_its_figures(tmp_path: Path) -> None:
    comparison = compared(tmp_path, "slowed")
    assert comparison.race.stopped_because == "time limit"
    assert comparison.race.seconds < wall_time.OVERTIME * LIMIT + GENEROUS
    runs = {run.level: run for run in comparison.runs}
    assert {run.check.verdict for run in runs.values()} == {"match"}
    assert runs["other"].time is not None


def test_a_block_that_does_not_end_ends_the_race(tmp_path: Path) -> None:
    began = time.monotonic()
    comparison = compared(tmp_path, "hung")
    assert time.monotonic() - began < wall_time.OVERTIME * LIMIT + GENEROUS
    eager, other = comparison.runs
    assert (eager.check.verdict, other.check.verdict) == ("match", "match")
    assert eager.time is not None
    [note] = other.notes
    assert note.startswith("the race ended in the middle of its block: no answer within")
    assert "load average" in note
    assert any("in the middle of a block of other" in note for note in comparison.notes)


def test_a_comparison_on_busy_cores_has_its_times(tmp_path: Path) -> None:
    """Three programs on every core."""
    with ExitStack() as stack:
        for core in 3 * list(os.sched_getaffinity(0)):
            stack.enter_context(spinning_on(core))
        comparison = compared(tmp_path, "none")
    assert comparison.race.seconds < wall_time.OVERTIME * LIMIT + GENEROUS
    assert all(run.time is not None for run in comparison.runs)
