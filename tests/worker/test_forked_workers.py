"""A forked worker is what it would be as a new interpreter, and what could differ is not forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from golow.levels.level import python_worker
from golow.worker.client import Worker
from golow.worker.process import worker_environment
from support.processes import all_gone, family, mentioning, soon
from support.workers.forked_workers import ForkServer, fork_commands

SAYS = """
import os, sys
import torch
print(os.getcwd(), os.environ["GOLOW_TOLD"], os.getppid(), sys.argv[1], sys.path[0], __name__)
print("to the log", file=sys.stderr)
raise RuntimeError("planted")
"""
EAGER = python_worker("golow.levels.torch.eager", "")


@pytest.mark.slow
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
        assert "libtorch" in Path(f"/proc/{first.pid}/maps").read_text()  # from its beginning
        assert first.import_all("train") < 60
        os.kill(second.pid, signal.SIGKILL)
        assert second._process.wait(10) == -signal.SIGKILL
        assert fork_server.can_fork(list(EAGER), worker_environment(sys.executable, 1, {}))
    assert first._process.returncode == 0


@pytest.mark.usefixtures("forked")
def test_the_system_shows_its_command_and_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests look by them for processes that should have ended."""
    monkeypatch.setenv("GOLOW_TEST", "of this test alone")
    with Worker("worker", EAGER, threads=1) as worker:
        assert soon(lambda: mentioning("of this test alone") == [worker.pid])
        shown = psutil.Process(worker.pid)
        assert [word for word in shown.cmdline() if word] == [*EAGER]
        given = worker_environment(sys.executable, 1, {})
        assert {name: shown.environ().get(name) for name in given} == given
    assert mentioning("of this test alone") == []


COMMAND = """
import os, sys, torch
from golow.levels.level import python_worker
from golow.worker.client import Worker
print(torch is sys.modules["torch"], __name__, sys.argv, os.getppid(), flush=True)
for level in ("eager", "torchscript"):
    with Worker(level, python_worker(f"golow.levels.torch.{level}", ""), threads=1) as worker:
        print("libtorch" in open(f"/proc/{worker.pid}/maps").read(), worker.import_all("infer") > 0)
sys.stdin.read()
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("only", ["", "eager", "nothing"])
def test_a_command_is_forked_and_its_own_workers_are(
    monkeypatch: pytest.MonkeyPatch, only: str
) -> None:
    """It ends as it would, and so do they, and what forks them."""
    fork_commands(monkeypatch, only)
    before = set(family(os.getpid()))
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "7"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as command:
        assert command.stdout is not None and command.stdin is not None
        said = [command.stdout.readline().decode().rstrip() for _ in range(3)]
        assert said[0] == f"True __main__ ['-c', '7'] {os.getpid()}"
        forked = [only in name for name in ("eager", "torchscript")]
        assert said[1:] == [f"{one} True" for one in forked]
        own = set(family(command.pid))
        command.stdin.close()
        assert command.wait() == 7
    assert all_gone(*own, *(set(family(os.getpid())) - before))


@pytest.mark.usefixtures("forked")
def test_streams_that_are_not_given_are_the_tests(capfd: pytest.CaptureFixture[str]) -> None:
    environment = worker_environment(sys.executable, 1, {})
    command = [sys.executable, "-m", "golow.measure.peak", "nowhere", "default", "1"]
    assert subprocess.run(command, env=environment, check=False).returncode == 1
    said = capfd.readouterr().err
    assert "become" in said and said.endswith("KeyError: 'nowhere'\n")


@pytest.mark.parametrize(
    ("level", "threads", "extra"),
    [
        ("golow.levels.torch.eager", 2, {}),
        ("golow.levels.torch.eager", 1, {"LD_PRELOAD": "x.so"}),
        ("golow.levels.torch.eager", 1, {"OMP_WAIT_POLICY": "active"}),
        ("golow.levels.torch.compile", 1, {"TORCHINDUCTOR_FREEZING": "1"}),
        ("golow.levels.direct.onednn", 1, {}),
        ("golow.levels.peers.openvino", 1, {}),
    ],
)
def test_what_a_fork_could_change_is_started(
    fork_server: ForkServer, level: str, threads: int, extra: dict[str, str]
) -> None:
    """Threads, libraries and settings are read at the start; workers without torch have none."""
    environment = worker_environment(sys.executable, threads, extra)
    assert not fork_server.can_fork(list(python_worker(level, "")), environment)
