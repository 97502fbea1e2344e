"""The records of a profile."""

from __future__ import annotations

from golow.profiling.kernels import GpuSummary, KernelTime
from golow.profiling.operators import OperatorTime
from golow.profiling.summary import Part
from golow.profiling.way_down.record import WayDown
from golow.record import LayerTime, Quantity, Record, Workload


class LevelProfile(Record, frozen=True, kw_only=True):
    """One level.

    verdict, reason: of the check, before anything was timed. time: seconds of an iteration in a
    race without a profiler. profiled: seconds of a step under the profiler, the mean. summary:
    what a step's time went to. gpu: None without kernels. layers: every step of the level, timed
    separately without a profiler; layers_missing: why there are none. missing: why there is no
    profile.
    """

    level: str
    verdict: str
    reason: str = ""
    time: Quantity | None = None
    profiled: float | None = None
    steps: int = 0
    summary: tuple[Part, ...] = ()
    gpu: GpuSummary | None = None
    operators: tuple[OperatorTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    layers: tuple[LayerTime, ...] = ()
    layers_missing: str = ""
    trace: str = ""
    missing: str = ""


class Profile(Record, frozen=True, kw_only=True):
    """A workload in one precision, at several levels. ways: the ways down of layers that were
    counted instead of a profile."""

    workload: Workload
    levels: tuple[LevelProfile, ...]
    ways: tuple[WayDown, ...] = ()
