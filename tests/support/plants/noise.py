"""A shared machine's noise in virtual time: what the measuring must see through.

A machine is also the clock of the race: it advances by what its workers run, so that a race of a
minute takes milliseconds. `SyntheticMachine` is drawn from the kinds of noise one meets;
`ReplayedMachine` plays back a recording of a real one.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from golow.records.comparison import Sample
from golow.worker.protocol import Challenge

Array = npt.NDArray[np.float64]

HORIZON = 600.0  # seconds of drift and contention drawn in advance; later times begin again
GRID = 0.05  # seconds between two points of them
DRIFT_MEMORY = 30.0  # seconds after which drift has mostly forgotten where it was
SPIKE_PROBABILITY = 0.005
LONGEST_SPIKE = 464 / 5  # seen: a 5 ms step that took 464 ms
LAYOUT = 0.005  # by how much a process is faster or slower than its twin for as long as it lives
COLD = 0.5  # how much slower a block begins, with the caches and the clock of another process
COLD_SECONDS = 0.005  # after which most of that is over


class Machine(Protocol):
    """A place where workers run, one at a time."""

    def __call__(self) -> float:
        """The time on its monotonic clock, in seconds."""

    def run(self, work: Array, pause: float) -> tuple[Array, float]:
        """Runs consecutive iterations of so many seconds' work on a calm machine, each with a pause
        that no noise stretches. Returns their wall seconds and the wait share."""


class SyntheticMachine:
    """Slow drift that hits all alike, heavy-tailed spikes, jitter of blocks, contended stretches.

    drift: the farthest that the clock strays (0.2: between 20% slower and 20% faster).
    contention: whether other processes come by. What is drawn for one kind of noise does not
    depend on whether another is switched on.
    """

    def __init__(self, seed: int, *, drift: float = 0.2, contention: bool = True) -> None:
        drift_draw, contention_draw, self._draw = (
            np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(3)
        )
        self.now = 0.0
        self._drift = 1 + drift * _wander(drift_draw)
        self._waiting = _stretches(contention_draw) if contention else np.zeros_like(self._drift)

    def __call__(self) -> float:
        return self.now

    def run(self, work: Array, pause: float) -> tuple[Array, float]:
        begins = self.now + np.cumsum(work + pause) - work - pause
        point = (begins / GRID).astype(int) % len(self._drift)
        waiting = self._waiting[point]
        spikes = np.where(
            self._draw.random(len(work)) < SPIKE_PROBABILITY,
            np.minimum(1 + self._draw.pareto(1.1, len(work)), LONGEST_SPIKE),
            1.0,
        )
        block_jitter = self._draw.lognormal(0, 0.005)
        wall = work * block_jitter * self._drift[point] * spikes / (1 - waiting) + pause
        self.now += float(wall.sum())
        calm = self._draw.lognormal(np.log(0.001), 0.5)
        return wall, float(calm + (waiting * wall).sum() / wall.sum())


def _wander(draw: np.random.Generator) -> Array:
    """An autocorrelated walk between -1 and 1, of which it reaches one."""
    memory = np.exp(-GRID / DRIFT_MEMORY)
    walk = lfilter([1.0], [1.0, -memory], draw.standard_normal(2 * int(HORIZON / GRID)))
    settled = walk[len(walk) // 2 :]
    return np.asarray(settled / np.abs(settled).max(), dtype=float)


def _stretches(draw: np.random.Generator) -> Array:
    """At each time the share of it that a thread waits for a core: mostly 0, at most half."""
    waiting, begin = np.zeros(int(HORIZON / GRID)), 0.0
    while begin < HORIZON:
        begin += draw.exponential(6.0)
        end = begin + draw.uniform(0.2, 1.5)
        waiting[int(begin / GRID) : int(end / GRID)] = draw.uniform(0.05, 0.5)
        begin = end
    return waiting


class ReplayedMachine:
    """Plays `RECORDED` from a random place on, and again from its beginning."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        fields = [f"{entry}/0".split("/")[:2] for entry in RECORDED.split()]
        self._slowness, self._waiting = np.array(fields, dtype=float).T / 1000
        self._next = int(np.random.default_rng(seed).integers(len(self._slowness)))

    def __call__(self) -> float:
        return self.now

    def run(self, work: Array, pause: float) -> tuple[Array, float]:
        played = (self._next + np.arange(len(work))) % len(self._slowness)
        self._next += len(work)
        wall = work * self._slowness[played] + pause
        self.now += float(wall.sum())
        return wall, float((self._waiting[played] * wall).sum() / wall.sum())


class VirtualWorker:
    """Takes ``seconds`` an iteration on a calm machine, and ``pause`` seconds besides.

    Its jitter and its layout are its own for life; ``twin`` workers have the same layout.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        *,
        seconds: float,
        pause: float = 0.0,
        seed: int = 0,
        twin: bool = False,
    ) -> None:
        self.name, self.machine, self.pause = name, machine, pause
        self._draw = np.random.default_rng([seed, *name.encode()])
        layout = 1.0 if twin else 1 + self._draw.uniform(-LAYOUT, LAYOUT)
        self._seconds = seconds * layout
        self._jitter = self._draw.uniform(0.01, 0.03)

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        count = warmup + iterations
        cold = 1 + COLD * np.exp(-np.arange(count) * self._seconds / COLD_SECONDS)
        work = self._seconds * cold * self._draw.lognormal(0, self._jitter, count)
        wall, wait_share = self.machine.run(work, self.pause)
        timed = (wall[warmup:] * 1e9).astype(int)
        return Sample(host_ns=tuple(timed.tolist()), wait_share=wait_share)


# Recorded on a virtual machine with 2 cores of an AMD EPYC on which other processes came and went:
# 724 consecutive iterations of one thread's matrix products (19 ms each) in thousandths of their
# median; after the slash, thousandths of the iteration that the thread waited for a core, if any.
RECORDED = """
993 989 989 996 991 995 1002/1 1002 999 1003 1007 1002 999 1002 1001 1001 1016 1009 1005 1004
1022 1025 1008 1017/1 1004 1023 1016 1010 1009 1006 1002 998 1002 1002 1003 1011 1005 1001 1005
1008 1016 996 1016 1010 1020 1008 1006 998 1010 998 1000 993 1006 1013 1004 999 1004 995 1001
997 988 995 1007 1009 999 993 1000 995 997 997 996 999 998 994 999 1008/14 994 997 997 998 995
994 997 995/1 994 994/1 999 1002 1001 998 994 994 994 993 1004 1003 999/2 995 995 999 998 992
991 998 994 997 1004 999 1000 997 997 1000/1 1000 1022 993 998 996 998 995 1006 998 1003 996
1000/2 991 999 995 1000 1009/12 998 999 1005 1002 1020 1017 1014 1019 1026/3 1023 1015 1027 1055
1070/3 1764/361 2130/497 2106/501 2103/502 2105/502 2107/501 2113/500 2098/504 2105/502 2094/505
2066/512 1862/455 2092/506 2079/509 2074/510 2071/511 2083/508 2071/511 1065/52 1011/1 1000 1012
1013 1010 1003 997 1003 1008 1006 997 1000 1000 1002 996 997 993 996 1009 1001 1002 994/1 995
996 995 998 989 986 990 993 991 997 999 1007 1011 998 994 995 1008 1004/1 1000 1012 1006 1006
1003 1003 1007 1001 991 994 992 997/1 985 988 993 994 997 995 997 999 1001 1000 992 989 990 993
1000 995 991 994 1003 1014 999 1000 1003 999 1017 998 998 1012 1013 1017 1014 1007 1009 1004
1002 1012 1009 1005 1012 1005 1007 996 993 998 1002 1008 996 995 1000 1004 1005 1006/2 1000 997
1007 1028 1030 1035 1041 1007 1005 1011/1 993 993 999/1 998 996 1004 1006 1006 1000 1000 1005
1005/1 1006 1001 1004 1001 999 998 1000 1001 997 997 998 1000 1000 999 995 994 994 984 997 1000
996 990 992 991 994 991 999/1 994 989 997 996 1000 1003 1000 991 987 993 996 995 990 991 991
1053/1 1065/2 1043 1026/2 1660/510 1852/457 2064/513 2090/506 2066/512 2065/512 1858/456
1910/461 2107/502 2077/509 2286/556 2067/512 2074/514 2072/511 1856/456 2082/509 2072/511
2053/515 2056/516 1841/460 2056/515 2055/515 1868/466 1843/459 2048/517 2055/516 1890/473 996/1
987 998/2 987 1000/1 1001 1006 1005 1002 1010 999 1005 997 1041 1031 1015 1023 1020 1028 1023
1015 1007 1014 1011 1020 1006 1003/1 1001 996 1013 1033 996 1002 991 1001/1 1003 1002 1005 997
1001/1 999 990 994 1002 992 995 989 979 987 983 995 991 1009 1009 1012 1010 1000 1002 998 1004
998 993 1003 1013 1023 1026 1028 1020 1016 1017 1013 1013 1007 1012 1011 1009 999 1001 997 998
1006 1006 999 999 1004 1007 1014/1 1006 995 1004 1004 996 994 995 1001 1007 1018/1 1011 1003 998
1002 996 1002 999 998 1000 1001 1000 1004/1 994 995 991 992 989 992 995 1001 997 1008 1006 1004
1002 1019 1034 1031 1030 1021 1014 1014 1006 999 996 995 1000 1003 1000 996 1003 998 997/1 1001
994 1015 1005 1001 1003 998 1008/1 1027/4 1007/2 1003/1 1009 1003 1859/455 1861/455 2077/509
2087/507 2101/504 2083/509 1222/173 1008 1017 1018 1012 1010 1075/52 1030 1431/296 2104/503
1936/454 2146/494 1034 1001 994 996 995/1 989 991 2055/515 1841/575 1845/459 1466/289 1011 1003
1006 1065/48 1008/1 1102/97 1850/458 1853/457 2082/509 1640/388 1002 1001 1001 1025/14 998 1001
995 995 989 988 993 997 998 989 1000 998 1002 1002 1006 1012 1008 1012 1014 1008 998 1004 1002
1003 1004 1014 1003 1006 1019 1023 1011 1013 1010/2 1011 1012 1006 1009 997 993 991 990 994 991
986 992 990 987 990 987 986 982 987 989 992 988 982 990 983 980 989 990 988 989 990 987 987 984
979 982 986 990 990 992 985 983 990 991 983 989 984/1 975 983 976 983 977 980/1 988 990 980 980
984 986 988 996/2 988 981 978 984 989 983 984 985 984 988 986 980 976 975/1 976 968 981 983 990
988 985 976 983 980 978 979 975 980 982 980 978 989 979 977 979 979 974 972 983 983 984 982 985
982 988/1 984 984 984 984 983 985 981 980 983 983/1 976/2 977 979 980 977 979 982 983 978 986
980 983 979 976 983 986 983 986
"""
