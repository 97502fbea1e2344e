"""The records of a life cycle.

Format history of ``life.json``:

1   November 2026, the first.
"""

from __future__ import annotations

from typing import Literal

from golow.records.comparison import Environment, Quantity, VerdictName
from golow.records.record import Record
from golow.records.workload import Workload

FORMAT_VERSION = 1

CacheState = Literal["cold", "warm"]
Stage = Literal[
    "import", "capture", "build", "load", "first_iteration", "settling", "steady_iteration", "end"
]
START: tuple[Stage, ...] = ("capture", "build", "import", "load")
"""Stages before the first iteration, in the order of a life."""


class Life(Record, frozen=True, kw_only=True):
    """One life of one level: a process from its start to its end.

    cache: ``cold`` if golow's cache was an empty folder, ``warm`` if a life before had filled it.
    round: in which it was measured, from 0. setting: a variable of the environment that the life
    tried, as NAME=VALUE; empty without. seconds: by stage; ``settling`` is what the iterations
    before the settled ones took beyond steady ones, the first not counted. settled_after: the
    iterations before the settled ones, the first counted; None if the iterations did not settle.
    iterations: nanoseconds of each, in order, raw. figures: ``disk`` (bytes in the cache after the
    life), ``artifact``, memory, ``gpu_energy`` and ``package_energy`` (J, whole life), and
    ``wait_share`` (how long its threads waited for a core, over the life of the worker).
    """

    cache: CacheState
    round: int
    seconds: dict[Stage, float]
    iterations: tuple[int, ...]
    settled_after: int | None = None
    setting: str = ""
    figures: tuple[Quantity, ...] = ()

    @property
    def start(self) -> float:
        """Seconds before the first iteration."""
        return sum(self.seconds.get(stage, 0.0) for stage in START)

    def figure(self, name: str) -> float | None:
        """The value of the figure of that name; None if it was not measured."""
        return next((figure.value for figure in self.figures if figure.name == name), None)


class Change(Record, frozen=True, kw_only=True):
    """Cost of another batch size for a level that was running.

    batch: the new size. same_process: whether the running worker took it; else a new one was
    started. seconds, settled_after and iterations: as of a life; a stage that was not needed is
    missing. Weights that the running worker read again are not counted.
    """

    round: int
    batch: int
    same_process: bool
    seconds: dict[Stage, float]
    iterations: tuple[int, ...]
    settled_after: int | None = None

    @property
    def until_first(self) -> float:
        """Seconds from the new batch size to its first result."""
        return sum(self.seconds.get(stage, 0.0) for stage in (*START, "first_iteration"))

    @property
    def until_settled(self) -> float:
        """Seconds from the new batch size to the first steady iteration: everything, less what its
        iterations would have taken anyway."""
        return self.until_first + self.seconds.get("settling", 0.0)


class LevelLife(Record, frozen=True, kw_only=True):
    """One level.

    verdict, reason: of the comparison's check; only a level that matches has lives. failed: where
    a life failed, and why; the lives before it are kept. time: seconds of an iteration in the
    comparison's race. setting_missing, change_missing: why there is no life with a setting, or no
    change of the batch.
    """

    level: str
    verdict: VerdictName
    reason: str = ""
    failed: str = ""
    log: str = ""
    time: Quantity | None = None
    lives: tuple[Life, ...] = ()
    changes: tuple[Change, ...] = ()
    setting_missing: str = ""
    change_missing: str = ""

    def of(self, cache: CacheState, setting: str = "") -> tuple[Life, ...]:
        """Its lives with that cache and setting."""
        return tuple(one for one in self.lives if (one.cache, one.setting) == (cache, setting))


class LifeCycle(Record, frozen=True, kw_only=True):
    """The life cycle of a workload at every level.

    id, created: of the comparison that checked and raced the levels. rounds: planned; each level
    lives once with each cache in a round. interrupted: whether Ctrl-C ended it before.
    """

    format_version: int = FORMAT_VERSION
    id: str
    created: str
    workload: Workload
    environment: Environment
    rounds: int
    levels: tuple[LevelLife, ...]
    interrupted: bool = False
    notes: tuple[str, ...] = ()
