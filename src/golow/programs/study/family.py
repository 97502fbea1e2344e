"""All processes of one cell: they inherit a mark in their environment, and end together.

A worker that hangs does not notice that its parent has died, and would keep using the device
while the next cell is measured.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MARK = "GOLOW_CELL"

_PATIENCE = 5.0  # seconds for killed processes to end and free device memory
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD


def end_family(mark: str) -> None:
    """Kill every process with this mark except the caller, and wait until they are gone."""
    deadline = time.monotonic() + _PATIENCE
    while (found := look(mark)).may_have_more and time.monotonic() < deadline:
        for process in found.marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


class Found(NamedTuple):
    """Processes with a mark, and those whose program is just being exchanged: they have no
    environment for a moment, which on a busy machine may last some milliseconds."""

    marked: list[int]
    starting: list[int]

    @property
    def may_have_more(self) -> bool:
        """True if there are any, or may be."""
        return bool(self.marked or self.starting)


def look(mark: str, processes: Path = Path("/proc")) -> Found:
    """Look for processes with this mark, except the caller."""
    entry = f"{MARK}={mark}".encode()
    found = Found([], [])
    for folder in processes.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            environment = (folder / "environ").read_bytes()
            if entry in environment.split(b"\0"):
                found.marked.append(int(folder.name))
            elif not environment and _is_starting(folder):
                found.starting.append(int(folder.name))
    return found


def _is_starting(folder: Path) -> bool:
    """True if a process without an environment lives, and has no command line yet either. One that
    has died and was not waited for has none any more, and a thread of the kernel never has."""
    if (folder / "cmdline").read_bytes():
        return False
    # After the name in parentheses, which may contain spaces: state, six numbers, flags.
    state, *numbers = (folder / "stat").read_text().rpartition(")")[2].split()
    return state not in "ZX" and not int(numbers[5]) & _KERNEL_THREAD
