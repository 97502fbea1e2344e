"""A forked worker is what it would be as a new interpreter, and what could differ is not forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from forked_workers import ForkServer
from golow.levels.level import python_worker
from golow.worker.client import Worker
from golow.worker.process import worker_environment

SAYS = """
import os, sys
import torch
print(os.getcwd(), os.environ["GOLOW_TOLD"], os.getppid(), sys.argv[1], sys.path[0], __name__)
print("to the log", file=sys.stderr)
raise RuntimeError("planted")
"""
EAGER = python_worker("golow.levels.torch.eager", "")


@pytest.mark.usefixtures("forked")
def test_a_script_finds_what_it_would_find_and_ends_as_it_would(tmp_path: Path) -> None:
    script = tmp_path / "planted.py"
    script.write_text(SAYS)
    environment = worker_environment(sys.executable, 1, {"GOLOW_TOLD": "this"})
    said, wrote = [], []
    for variable in ("GOLOW_TOLD", "OTHER"):  # the second time it is not forked
        with subprocess.Popen(
            [sys.executable, str(script), "word"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
            env={**environment, variable: "this"},
        ) as process:
            output, error = process.communicate()
        assert process.returncode == 1
        said.append(output.decode().split())
        wrote.append((error.decode().splitlines()[0], error.decode().splitlines()[-1]))
    assert said[0] == said[1]
    assert said[0][2] == str(os.getpid())
    assert wrote[0] == wrote[1] == ("to the log", "RuntimeError: planted")


@pytest.mark.usefixtures("forked")
def test_a_worker_is_new_each_time_and_how_it_ended_is_known(fork_server: ForkServer) -> None:
    with Worker("first", EAGER, threads=1) as first, Worker("second", EAGER, threads=1) as second:
        assert first.pid != second.pid
        assert os.getpgid(first.pid) == first.pid  # so that it and its compilers end together
        assert psutil.Process(first.pid).ppid() == os.getpid()
        # The process that forks has imported torch, so the command it shows is another one.
        assert "forked_workers" in " ".join(psutil.Process(first.pid).cmdline())
        assert first.import_all("train") < 60
        os.kill(second.pid, signal.SIGKILL)
        assert second._process.wait(10) == -signal.SIGKILL
        assert fork_server.can_fork(list(EAGER), worker_environment(sys.executable, 1, {}))
    assert first._process.returncode == 0


@pytest.mark.parametrize(
    ("level", "threads", "extra"),
    [
        ("golow.levels.torch.eager", 2, {}),
        ("golow.levels.torch.eager", 1, {"LD_PRELOAD": "x.so"}),
        ("golow.levels.torch.eager", 1, {"OMP_WAIT_POLICY": "active"}),
        ("golow.levels.torch.compile", 1, {"TORCHINDUCTOR_FREEZING": "1"}),
        ("golow.levels.vendor.onednn", 1, {}),
        ("golow.levels.peers.openvino", 1, {}),
    ],
)
def test_what_a_fork_could_change_is_started(
    fork_server: ForkServer, level: str, threads: int, extra: dict[str, str]
) -> None:
    """Threads, libraries and settings are read at the start; workers without torch have none."""
    environment = worker_environment(sys.executable, threads, extra)
    assert not fork_server.can_fork(list(python_worker(level, "")), environment)
