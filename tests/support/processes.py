"""What is left of processes: the tests look whether all have ended that should have."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

PATIENCE = 10.0  # seconds: the system ends a killed process at once, but this machine is shared

SPIN = "print('spinning', flush=True)\nwhile True: pass"


@contextmanager
def spinning_on(core: int) -> Iterator[int]:
    """A process that burns the core; gives its pid."""
    pin = f"import os; os.sched_setaffinity(0, {{{core}}})\n"
    with subprocess.Popen([sys.executable, "-c", pin + SPIN], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


@contextmanager
def on_one_core() -> Iterator[None]:
    """What is started meanwhile has one core, and golow one thread there. Two would wait for the
    core of the tests beside these, spinning."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def is_gone(process: int) -> bool:
    """True if the process has ended; one that nobody has waited for yet has ended too."""
    try:
        return psutil.Process(process).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return True


def all_gone(*processes: int) -> bool:
    """True if all of them have ended, or do so soon."""
    return soon(lambda: all(is_gone(process) for process in processes))


def mentioning(text: str) -> list[int]:
    """Processes that live and have the text in their command line or their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            words = [*process.cmdline(), *process.environ().values()]
            if any(text in word for word in words) and not is_gone(process.pid):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def family(process: int) -> list[int]:
    """The process and all that descends from it."""
    parent = psutil.Process(process)
    return [process, *(child.pid for child in parent.children(recursive=True))]


def soon(condition: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """True if it becomes true before long, within so many seconds."""
    deadline = time.monotonic() + patience
    while not (true := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return true
