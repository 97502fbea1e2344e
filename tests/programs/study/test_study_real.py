"""A small study of real comparisons by the command line: killed, resumed, shown, refined."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from golow.api import load_study
from golow.commands.study import study_app
from golow.measure.words import LEAST_ROUNDS
from golow.programs.study.cells import key
from support.processes import mentioning, soon
from support.workers.forked_workers import fork_commands

NET = """\
from torch import nn
class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
"""
STUDY = """\
name = "real"
model = "net.py:Net"
levels = "eager"
batch = 2
resolution = [4, 16]
threads = 1
[limits]
interval = 0.5
seconds = 0.0001
"""
STARTING = 120.0  # seconds that a cell's process may take until its workers are there
COMMAND = "from golow.commands.study import study_app; study_app()"


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_study_is_killed_resumed_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_commands(monkeypatch)
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    Path("mine.toml").write_text(STUDY)
    study = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "run", "mine.toml"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    drafts = str(Path("runs/studies/real/drafts").resolve())
    folder = Path("runs/studies/real")
    # The first cell has a size that the network does not take, the second has workers.
    assert soon(lambda: len(list(folder.glob("cells/*/*/cell.json"))) == 1, STARTING)
    assert soon(lambda: len(mentioning(drafts)) > 1, STARTING)
    [cell] = set(mentioning(drafts)) & {one.pid for one in psutil.Process(study.pid).children()}
    workers = set(mentioning(drafts)) - {cell}
    os.kill(cell, signal.SIGKILL)
    assert soon(lambda: not workers & set(mentioning(drafts)))
    assert soon(lambda: len(mentioning(drafts)) > 1, STARTING)  # it is measured again
    study.kill()
    _, told = study.communicate()
    assert "2 cells, 0 already measured; about " in told
    assert "(guesses, until a cell is measured)" in told
    assert "failed  net.py:Net infer, batch 2, 4x4, 1 thread " in told
    assert "does not accept an input of 2x3x4x4: RuntimeError: " in told
    assert (
        "again   net.py:Net infer, batch 2, 16x16, 1 thread: its process was ended by SIGKILL"
        in told
    )
    assert soon(lambda: mentioning(drafts) == [])

    assert "1 failed, 0 skipped, 1 waiting" in said("status", "real")
    assert "1 of 2 cells" in said("list")
    assert "unclear" in said("resume", "real")  # one round always runs, and took all the time
    result = load_study("runs/studies/real")
    assert result.waiting == ()
    [comparison] = result.comparisons()
    assert [run.check.verdict for run in comparison.runs] == ["match"]
    assert comparison.workload.inputs[0].shape == (2, 3, 16, 16)
    [cell] = result.unclear
    assert "0 done, 1 unclear, 1 failed, 0 skipped, 0 waiting" in said("run", "mine.toml")
    assert "1 done, 0 unclear, 1 failed, 0 skipped, 0 waiting" in said("resume", "real", "--refine")
    refined = load_study("runs/studies/real")
    [longer] = refined.comparisons()
    assert len(longer.runs[0].blocks) >= LEAST_ROUNDS > len(comparison.runs[0].blocks)
    assert refined.records[key(cell)].cell == cell
    shown = said("show", "real")
    assert "fail: failed; the record has the reason" in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert "nothing is left to measure" in said("status", "runs/studies/real")


def said(*words: str) -> str:
    """What the command prints; it ends well."""
    done = CliRunner().invoke(study_app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output
