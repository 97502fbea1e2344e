"""Ctrl-C, wherever it strikes: one line, exit status 130, and nothing left behind.

`benchmarks/interrupts.py` does the same at random moments, many times.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes import mentioning, soon

LINE = "golow: interrupted\n"
COMPARE = "compare lenet5 --batch 4 --levels eager --time-limit 3".split()

START = "print('begun', flush=True); from golow.__main__ import main; main()"
STAND_IN = """
import atexit, os, sys, time
from golow import cli
from golow.storage.scratch import scratch_folder

def begun():
    print("begun", flush=True)

def command():
{body}

cli.main = command
from golow.__main__ import main
main()
"""


@contextmanager
def begun(
    code: str, folder: Path, arguments: Sequence[str] = (), before: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A process of that code, which has written ``begun``; in the end nothing of it is left."""
    with subprocess.Popen(
        [*before, sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        yield child
    assert soon(lambda: mentioning(str(folder)) == [])
    assert list(folder.glob("golow-*")) == []


def interrupt(child: subprocess.Popen[str]) -> None:
    """As a terminal does: the whole process group."""
    os.killpg(child.pid, signal.SIGINT)


# ---------------------------------------------------------------- golow itself


def test_the_package_can_be_run() -> None:
    command = [sys.executable, "-m", "golow", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("golow ")


@pytest.mark.parametrize("seconds", [0.01, 0.03, 0.08, 0.14, 0.2, 1.0])
def test_an_interrupt_while_the_command_line_is_imported(tmp_path: Path, seconds: float) -> None:
    with begun(START, tmp_path, COMPARE) as child:
        time.sleep(seconds)
        interrupt(child)
        assert child.communicate() == ("", LINE)
        assert child.returncode == 130


IMPORTING = """
    import signal
    inside, calls = [], []
    def watch(frame, event, called):
        if getattr(called, "__name__", "") == "_autograd_init":
            inside[:] = [event] if event == "c_call" else []
        elif inside and event == "call":  # of Python, by compiled code
            calls.append(frame)
            if len(calls) == {number}:
                signal.raise_signal(signal.SIGINT)
    begun()
    sys.setprofile(watch)
    import torch
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 13])
def test_an_interrupt_while_compiled_code_of_pytorch_imports(tmp_path: Path, number: int) -> None:
    """An exception in the thirteenth call is a segmentation fault in torch 2.13."""
    with begun(STAND_IN.format(body=IMPORTING.format(number=number)), tmp_path) as child:
        assert child.communicate() == ("", LINE)
        assert child.returncode == 130


@pytest.mark.slow
def test_two_interrupts_while_workers_load(tmp_path: Path) -> None:
    arguments = [*COMPARE, "--out", str(tmp_path / "runs")]
    with begun(START, tmp_path, arguments) as child:
        assert child.stderr is not None
        assert any("capturing the graph" in line for line in child.stderr)
        time.sleep(0.5)
        assert len(list(tmp_path.glob("golow-*"))) >= 2  # the folder and its lock
        interrupt(child)
        time.sleep(0.05)
        interrupt(child)
        output, error = child.communicate()
        assert child.returncode == 130
    assert "Traceback" not in output + error
    assert error.endswith(LINE)


# ---------------------------------------------------------------- the entry, with small commands

CALM = "    begun(); time.sleep(60)"
CLEANING = """
    with scratch_folder() as folder:
        (folder / "weights").touch()
        try:
            begun(); time.sleep(60)
        finally:
            begun(); time.sleep(60)
"""
IN_A_DESTRUCTOR = """
    class Slow:
        def __del__(self):
            begun(); time.sleep(0.5)
    Slow()
    time.sleep(60)
"""
AT_THE_END = "    atexit.register(lambda: (begun(), time.sleep(60)))"
AFTER_PARTIAL_RESULTS = """
    try:
        begun(); time.sleep(60)
    except KeyboardInterrupt:
        print("partial results")
        sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (CALM, ""),
        (IN_A_DESTRUCTOR, ""),
        (AT_THE_END, ""),
        (AFTER_PARTIAL_RESULTS, "partial results\n"),
    ],
    ids=["calm", "in a destructor", "at the end", "after partial results"],
)
def test_one_line_and_status_130(
    tmp_path: Path, number: signal.Signals, body: str, said: str
) -> None:
    with begun(STAND_IN.format(body=body), tmp_path) as child:
        os.killpg(child.pid, number)
        assert child.communicate(timeout=30) == (said, LINE)
        assert child.returncode == 130


def test_a_second_interrupt_ends_the_cleaning_up_but_leaves_no_folder(tmp_path: Path) -> None:
    with begun(STAND_IN.format(body=CLEANING), tmp_path) as child:
        interrupt(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        interrupt(child)
        assert child.communicate(timeout=30) == ("", LINE)
        assert child.returncode == 130


# Python looks for signals after a call, not after the step of an iterator: this interrupt comes to
# light in the entry, when the command has returned.
BETWEEN_COMMAND_AND_ENTRY = """
    import ctypes, functools
    begun()
    for _ in iter(functools.partial(ctypes.CDLL(None)["raise"], 2), 0):
        pass
"""


def test_an_interrupt_in_the_entry_itself(tmp_path: Path) -> None:
    with begun(STAND_IN.format(body=BETWEEN_COMMAND_AND_ENTRY), tmp_path) as child:
        assert child.communicate(timeout=30) == ("", LINE)
        assert child.returncode == 130


def test_a_hail_of_interrupts(tmp_path: Path) -> None:
    """They strike where the entry itself handles the first one."""
    body = "    with scratch_folder():\n    " + CALM
    with begun(STAND_IN.format(body=body), tmp_path) as child:
        while child.poll() is None:
            interrupt(child)
        assert child.communicate(timeout=30) == ("", LINE)
        assert child.returncode == 130


AT_THE_VERY_END = """
    class Late:
        def __del__(self, write=os.write, sleep=time.sleep):
            write(1, b"begun\\n"); sleep(0.5)
    sys.modules["late"] = Late()
"""


@pytest.mark.slow
def test_an_interrupt_while_python_ends_changes_nothing(tmp_path: Path) -> None:
    """Python handles no signals then, and the command has done its work."""
    with begun(STAND_IN.format(body=AT_THE_VERY_END), tmp_path) as child:
        interrupt(child)
        assert child.communicate(timeout=30) == ("", "")
        assert child.returncode == 0


@pytest.mark.slow
def test_a_background_job_of_a_shell_ignores_ctrl_c(tmp_path: Path) -> None:
    body = "    begun(); sys.stdin.read()"
    shell = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    with begun(STAND_IN.format(body=body), tmp_path, before=shell) as child:
        interrupt(child)
        time.sleep(0.2)
        assert child.communicate("\n", timeout=30) == ("", "")
        assert child.returncode == 0
