"""How a worker died: by itself, by a signal, or killed for lack of memory; and its last words."""

from __future__ import annotations

import os
import signal
from pathlib import Path

LOG_LINES, LOG_BYTES = 15, 8192


def how_it_ended(status: int, kills_before: int) -> tuple[str, str]:
    """The kind and description of a failure, from a process's status (negative: a signal) and the
    value of `out_of_memory_kills` before it."""
    if status >= 0:
        return "died", f"it ended with status {status}"
    if status == -signal.SIGKILL and out_of_memory_kills() > kills_before:
        return "out of memory", "the system killed it to free memory"
    names = {number.value: number.name for number in signal.Signals}
    return "died", f"it was ended by {names.get(-status, f'signal {-status}')}"


def last_words(log: int) -> str:
    """The last part of a file that a process may still be writing to."""
    # No seeking: it would move the process's position in the shared open file.
    end = os.fstat(log).st_size
    text = os.pread(log, LOG_BYTES, max(0, end - LOG_BYTES))
    return "\n".join(text.decode(errors="replace").splitlines()[-LOG_LINES:])


def out_of_memory_kills() -> int:
    """How many processes the kernel has killed for lack of memory since it booted."""
    try:
        for row in Path("/proc/vmstat").read_text().splitlines():
            if row.startswith("oom_kill "):
                return int(row.split()[1])
    except OSError:
        pass
    return 0
