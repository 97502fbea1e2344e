"""Which hardware threads are of one physical core, how many threads a level gets by that, and
shares of the machine that cut no core in two."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path


def default_threads(root: Path = Path("/")) -> int:
    """One for each physical core of which this process may use a thread, as many as PyTorch takes
    by itself (https://github.com/pytorch/pytorch/pull/125963)."""
    return len(physical_cores(sorted(os.sched_getaffinity(0)), root))


def shares(threads: Sequence[int], count: int, root: Path = Path("/")) -> list[tuple[int, ...]]:
    """So many shares of these hardware threads, disjoint, equally large in cores and as large as
    that allows, ascending. Two threads of a physical core are in one share, since each slows the
    other down, unless there are more shares than cores; shares are empty where there are more than
    threads."""
    cores = physical_cores(threads, root)
    if len(cores) < count:
        cores = [[thread] for thread in threads]
    each = len(cores) // count
    return [
        tuple(sorted(chain(*cores[number * each : (number + 1) * each]))) for number in range(count)
    ]


def physical_cores(threads: Sequence[int], root: Path = Path("/")) -> list[list[int]]:
    """These hardware threads, those of each physical core together, in the order of its first; all
    by themselves where the kernel does not tell.

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
