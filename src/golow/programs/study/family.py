"""All processes of one cell: they inherit a mark in their environment, and end together.

A worker that hangs does not notice that its parent has died, and would keep using the device
while the next cell is measured.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "GOLOW_CELL"

_PATIENCE = 5.0  # seconds for killed processes to end and free device memory


def end_family(mark: str) -> None:
    """Kill every process with this mark except the caller, and wait until they are gone."""
    deadline = time.monotonic() + _PATIENCE
    while (found := list(_marked(mark))) and time.monotonic() < deadline:
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


def _marked(mark: str) -> Iterator[int]:
    entry = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            # A process that has died and was not waited for no longer has an environment.
            with suppress(OSError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
