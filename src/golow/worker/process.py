"""A worker as a process: starting and stopping it, and what the system reports about it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from golow.workload.import_path import python_environment

KILLED_FIRST = 500
"""Thousandths of the machine's memory that the kernel adds to a worker's when memory runs out."""
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


def start(
    command: Sequence[str], threads: int, environment: Mapping[str, str], log: int
) -> subprocess.Popen[bytes]:
    """Start a worker with pipes to and from it; its standard error goes to the file ``log``. Raises
    OSError if it cannot be started."""
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=worker_environment(command[0], threads, environment),
        # Its own process group, so that it and its compilers can be ended together, and so that
        # Ctrl-C reaches only the parent, which then ends the workers in order.
        start_new_session=True,
    )
    _end_before_this_process(process.pid)
    return process


def _end_before_this_process(pid: int) -> None:
    """Let the kernel, when memory runs out, kill that process and its children rather than this
    one: a worker's end is recorded, and the other levels go on. No-op where there is no such
    file."""
    own, other = (Path(f"/proc/{of}/oom_score_adj") for of in ("self", pid))
    with contextlib.suppress(OSError, ValueError):
        other.write_text(f"{min(int(own.read_text()) + KILLED_FIRST, 1000)}")


def worker_environment(program: str, threads: int, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of every worker: the same threads and wait policy for all levels."""
    # With this import path another Python would find the standard library of this one.
    own = python_environment() if program == sys.executable else os.environ
    return {**own, **thread_settings(threads), **extra}


def pipes(process: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """Standard input and output of a process that was started with pipes for both."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("the process was started without pipes")
    return process.stdin, process.stdout


def thread_settings(threads: int) -> dict[str, str]:
    """Thread count for every runtime a level may use.

    How threads wait between parallel regions is left at the runtime's default, as for users: with
    OMP_WAIT_POLICY=PASSIVE the wake-ups alone made LeNet-5 three times slower here. The caller's
    own setting reaches every level alike.
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "OMP_DYNAMIC": "FALSE",
    }


def is_restless(environment: Mapping[str, str]) -> bool:
    """True if a worker's threads keep cores busy while it has nothing to do, with these variables
    besides golow's own."""
    policy = environment.get("OMP_WAIT_POLICY", os.environ.get("OMP_WAIT_POLICY", ""))
    return policy.strip().lower() == "active"


@contextlib.contextmanager
def stopped(process: int) -> Iterator[None]:
    """Pause the process meanwhile."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def wait_until_gone(process: int, limit: float) -> bool:
    """True if a child has ended within this many seconds. The kernel reports it at once, while
    ``Popen.wait`` with a limit looks only every 50 ms."""
    handle = os.pidfd_open(process)
    try:
        return bool(select.select([handle], [], [], limit)[0])
    finally:
        os.close(handle)


def is_stopped(process: int) -> bool:
    """True if a signal or a debugger stopped it."""
    try:
        return str(psutil.Process(process).status()) in STOPPED
    except psutil.Error:
        return False


def resident_bytes(process: int) -> dict[str, int]:
    """The process's current resident set size and its peak."""
    found = {}
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return {"resident": psutil.Process(process).memory_info().rss}
    for row in text.splitlines():
        name, _, value = row.partition(":")
        if name in ("VmRSS", "VmHWM"):
            found["resident" if name == "VmRSS" else "resident_peak"] = 1024 * int(value.split()[0])
    return found


def reset_resident_peak(process: int) -> None:
    """Reset the peak of its resident set size to the current value."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process}/clear_refs").write_text("5")
