"""Which hardware threads belong to one physical core, the default number of threads of a level,
those that a worker keeps to, and shares of the machine that do not split a core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, zip_longest
from pathlib import Path

from golow.records.errors import GolowError


def default_threads(root: Path = Path("/")) -> int:
    """One per physical core of which this process may use a thread: PyTorch's own default
    (https://github.com/pytorch/pytorch/pull/125963)."""
    return len(physical_cores(sorted(os.sched_getaffinity(0)), root))


def require_threads(threads: int) -> None:
    """Raise `GolowError` for a number of threads that computes nothing, or that the machine lacks:
    libraries fail in their own ways when they start a billion threads."""
    if not isinstance(threads, int) or threads < 1:
        raise GolowError(f"{threads!r} threads compute nothing", "use --threads 1 or more.")
    most = os.cpu_count() or 1
    if threads > most:
        raise GolowError(
            f"{threads:,} threads are more than this machine's {most} hardware threads",
            f"use --threads {most} or fewer.",
        )


def threads_of_rank(ranks: int) -> int:
    """Return the default number of threads per rank, for this many ranks: one per physical core of
    its share."""
    several = isinstance(ranks, int) and ranks > 1  # other values are refused later
    return max(1, default_threads() // ranks) if several else default_threads()


def keep_to(count: int) -> None:
    """Let this process, with the threads that imports have started and those to come, run on that
    many hardware threads only: for a library whose threads cannot be counted otherwise."""
    chosen = spread(sorted(os.sched_getaffinity(0)), count)
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), chosen)


def spread(threads: Sequence[int], count: int, root: Path = Path("/")) -> list[int]:
    """``count`` of these hardware threads: one of each physical core first, then its second; all of
    them if there are fewer."""
    cores = physical_cores(threads, root)
    return [thread for row in zip_longest(*cores) for thread in row if thread is not None][:count]


def shares(threads: Sequence[int], count: int, root: Path = Path("/")) -> list[tuple[int, ...]]:
    """Disjoint shares of these hardware threads with equally many cores, as large as possible,
    ascending. Both threads of a physical core are in one share, since each slows the other down,
    unless there are more shares than cores. If there are more shares than threads, some are
    empty."""
    cores = physical_cores(threads, root)
    if len(cores) < count:
        cores = [[thread] for thread in threads]
    each = len(cores) // count
    return [
        tuple(sorted(chain(*cores[number * each : (number + 1) * each]))) for number in range(count)
    ]


def physical_cores(threads: Sequence[int], root: Path = Path("/")) -> list[list[int]]:
    """These hardware threads, grouped by physical core, in the order of each core's first; one
    group per thread if the kernel does not report the cores.

    https://docs.kernel.org/admin-guide/cputopology.html (thread_siblings_list)
    """
    cores: dict[str, list[int]] = {}
    for thread in threads:
        topology = root / f"sys/devices/system/cpu/cpu{thread}/topology"
        try:
            siblings = (topology / "thread_siblings_list").read_text()
        except OSError:
            siblings = f"{thread}"
        cores.setdefault(siblings.strip(), []).append(thread)
    return list(cores.values())
