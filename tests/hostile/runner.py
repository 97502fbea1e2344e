"""The warm process: imports golow once, then runs each case in a child that it forks.

    python -m hostile.runner    reads cases as JSON lines, answers each with its outcome

A new interpreter for each case would take seconds to import torch. `Runner` is the other end.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

import msgspec

from hostile.case import MOST_BYTES, Case, Outcome

CAPABILITIES_VERSION = 0x20080522
PR_SET_CHILD_SUBREAPER = 36  # orphans of a case become children of the warm process
MOST_OUTPUT = 1 << 20  # bytes that are kept of what a case prints


class Runner:
    """The warm process, as its user sees it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, case: Case, seconds: float = 60.0) -> Outcome:
        """How golow takes the case. seconds: after which it counts as a hang."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(msgspec.json.encode((case, seconds)) + b"\n")
        stdin.flush()
        return msgspec.json.decode(stdout.readline(), type=Outcome)


@contextmanager
def warm_runner(cache: Path) -> Iterator[Runner]:
    """A warm process for the time of the block. cache: golow's."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path)]),
        "GOLOW_CACHE": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "hostile.runner"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    with process:
        yield Runner(process)
        assert process.stdin is not None
        process.stdin.close()


# ---------------------------------------------------------------- the warm process


def main() -> None:
    """Answer cases until the input ends."""
    import torch

    import golow.cli
    import golow.programs.comparison.compare
    import golow.programs.explain.show_lowering
    import golow.programs.training.train  # noqa: F401

    torch.set_num_threads(1)  # a pool of threads does not survive a fork
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    answers = os.fdopen(os.dup(1), "wb")
    for line in sys.stdin.buffer:
        outcome = _run(*msgspec.json.decode(line, type=tuple[Case, float]))
        answers.write(msgspec.json.encode(outcome) + b"\n")
        answers.flush()


def _run(case: Case, limit: float) -> Outcome:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        began = time.monotonic()
        child = os.fork()
        if not child:
            _be_golow(case, output, error)
        in_time = _ends(child, limit)
        seconds = time.monotonic() - began
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # also what hostile code has left behind
        _, status, usage = os.wait4(child, 0)
        with suppress(ChildProcessError):
            while True:  # until what it left behind has ended, too
                os.waitpid(-child, 0)
        return Outcome(
            status=os.waitstatus_to_exitcode(status) if in_time else None,
            seconds=seconds,
            peak_bytes=usage.ru_maxrss * 1024,
            output=_text(output),
            error=_text(error),
        )


def _ends(child: int, limit: float) -> bool:
    """Wait for the child's end, for so many seconds at most."""
    descriptor = os.pidfd_open(child)
    try:
        return bool(select.select([descriptor], [], [], limit)[0])
    finally:
        os.close(descriptor)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_OUTPUT).decode(errors="replace")


def _be_golow(case: Case, output: IO[bytes], error: IO[bytes]) -> NoReturn:
    """Run the case as an interpreter of its own would, and end."""
    status = 1
    try:
        _confine(case, output, error)
        status = _status(case)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _confine(case: Case, output: IO[bytes], error: IO[bytes]) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((null, 0), (output.fileno(), 1), (error.fileno(), 2)):
        os.dup2(old, new)
    sys.stdin = os.fdopen(0)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(case.folder)
    if case.without_power:
        _drop_power()


def _drop_power() -> None:
    """Have the superuser's permissions checked like anyone's; its files stay its own."""
    header = struct.pack("<Ii", CAPABILITIES_VERSION, 0)
    ctypes.CDLL(None, use_errno=True).capset(header, bytes(24))


def _status(case: Case) -> int:
    from golow import cli
    from golow.records.errors import GolowError
    from golow.report.console import plain

    try:
        if case.code:
            exec(case.code, {"__name__": "case"})  # noqa: S102
        else:
            sys.argv = ["golow", *case.arguments]
            cli.main()
    except GolowError as refused:
        print(plain(f"golow: {refused.message}\n  {refused.hint}"), file=sys.stderr)
        return 2
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    return 0


if __name__ == "__main__":
    main()
