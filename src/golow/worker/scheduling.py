"""How long the threads of a process waited for a core, which distinguishes clean from contended
blocks, and how long they had one, which tells work that no clock of a worker counts.

Linux counts for every thread the nanoseconds that it spent runnable on a run queue without running
(second field of ``/proc/<pid>/task/<tid>/schedstat``). A process that has its cores to itself waits
almost not at all. If another one shares its core it waits half of its time, and its times then
reflect the machine's load, not the model.

Nothing here imports more than the standard library, since workers of every kind use it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

MUCH_LOST = 0.1
"""Share of the processor from which on a process waits for other programs."""


def busy_ns(pid: int, with_children: bool = True) -> int | None:
    """Nanoseconds of processor time that the process has used, ended threads included, and with it
    the processes that it has started and that still live.

    None if the system does not report it.
    """
    try:
        used = time.clock_gettime_ns(~pid << 3 | 2)  # Linux: the clock of another process
    except OSError:
        return None
    return used + sum(busy_ns(child) or 0 for child in (_children(pid) if with_children else ()))


def passed_ns(before: int | None, after: int | None) -> int | None:
    """The difference of two readings. A child that has ended took its count with it."""
    return None if before is None or after is None else max(0, after - before)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def run_queue_wait_ns(pid: int) -> int | None:
    """Nanoseconds that the process's threads have waited for a core, summed, since each began.

    None if the system does not report it: no Linux, no such process, or a kernel built without it.
    Child processes are not counted. When a thread ends its count disappears, so the sum can fall:
    see `ContentionMeter.wait_share`.
    """
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return None
    waits = [wait for thread in threads if (wait := _thread_wait_ns(thread)) is not None]
    return sum(waits) if waits else None


def _thread_wait_ns(thread: Path) -> int | None:
    """One thread's wait; None if it has ended meanwhile or the kernel does not count it."""
    try:
        _running, waiting, _slices = (thread / "schedstat").read_text().split()
    except (OSError, ValueError):
        return None
    return int(waiting)


class ContentionMeter:
    """Reads the run-queue wait of one process before and after a block.

    meter = ContentionMeter(os.getpid())
    before = meter.read()
    ...  # the block
    share = meter.wait_share(before, meter.read(), wall_ns)
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def read(self) -> int | None:
        """The wait so far in nanoseconds; None if the system does not report it."""
        return run_queue_wait_ns(self.pid)

    @staticmethod
    def wait_share(before: int | None, after: int | None, wall_ns: int) -> float | None:
        """Wait of all threads between two readings over the wall time between them.

        With several threads it can exceed 1. None if a reading is missing or no time passed.
        """
        if before is None or after is None or wall_ns <= 0:
            return None
        # The count of a thread that ended between the readings is gone: the difference is then too
        # small, perhaps negative, but never too large.
        return max(0, after - before) / wall_ns


class ProcessorShare:
    """How much of the processor's time a process lost to others since this was made.

    lost: nanoseconds that its threads waited for a core, over these and those that they had one.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited, self._ran = run_queue_wait_ns(pid), busy_ns(pid)

    @property
    def lost(self) -> float | None:
        """The share; None if the system does not report it, or if the process did neither."""
        waited = passed_ns(self._waited, run_queue_wait_ns(self._pid))
        ran = passed_ns(self._ran, busy_ns(self._pid))
        if waited is None or ran is None or waited + ran == 0:
            return None
        return waited / (waited + ran)

    @property
    def words(self) -> str:
        """State of the cores, and advice if they are busy."""
        cores, lost = len(os.sched_getaffinity(self._pid)), self.lost
        load = f"load average {os.getloadavg()[0]:.1f} on {cores} cores"
        if lost is None:
            return f"{load}; its threads ask for no core"
        if lost < MUCH_LOST:
            return f"{load}; it lost {lost:.0%} of the processor to others: it is slow by itself"
        return (
            f"the cores are busy ({load}): it lost {lost:.0%} of the processor to others; "
            "end other programs, or measure when they have ended"
        )
