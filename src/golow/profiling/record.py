"""The records of a profile."""

from __future__ import annotations

from golow.lower.work import LayerWork
from golow.measure.peak import Peak
from golow.profiling.kernels import GpuSummary, KernelTime
from golow.profiling.memory import MemoryProfile
from golow.profiling.operators import OperatorTime
from golow.profiling.summary import Part
from golow.record import Environment, LayerTime, Quantity, Record, TensorError, Workload


class LevelProfile(Record, frozen=True, kw_only=True):
    """One level.

    verdict, reason: of the check, before anything was timed. time: seconds of an iteration in a
    race without a profiler. profiled: seconds of a step under the profiler, the mean. summary:
    what a step's time went to. gpu: None without kernels. idle: why the GPU was idle. layers: on a
    device the kernels of each layer, on a CPU the level's steps, timed separately without a
    profiler; layers_missing: why there are none. memory: over one step; memory_missing: why there
    is none. missing: why there is no profile. worst: of a level that matches, the tensor closest to
    its limit.
    """

    level: str
    verdict: str
    reason: str = ""
    time: Quantity | None = None
    profiled: float | None = None
    steps: int = 0
    summary: tuple[Part, ...] = ()
    gpu: GpuSummary | None = None
    idle: tuple[Part, ...] = ()
    operators: tuple[OperatorTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    layers: tuple[LayerTime, ...] = ()
    layers_missing: str = ""
    memory: MemoryProfile | None = None
    memory_missing: str = ""
    trace: str = ""
    missing: str = ""
    worst: TensorError | None = None


class Profile(Record, frozen=True, kw_only=True):
    """A workload in one precision, at several levels, and where they ran: None in the records of
    an earlier golow. work: what each layer of its graph needs at the least; empty if it could not
    be captured. peak: of the machine; None if it was not measured."""

    workload: Workload
    levels: tuple[LevelProfile, ...]
    environment: Environment | None = None
    work: tuple[LayerWork, ...] = ()
    peak: Peak | None = None
