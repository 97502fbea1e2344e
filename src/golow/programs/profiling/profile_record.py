"""The records of a profile."""

from __future__ import annotations

from golow.lower.analysis.arithmetic import LayerWork
from golow.measure.peak import Peak
from golow.programs.profiling.communication import Communication
from golow.programs.profiling.copies import CopyTime
from golow.programs.profiling.kernels import GpuSummary, KernelTime
from golow.programs.profiling.memory import MemoryProfile
from golow.programs.profiling.operators import OperatorTime
from golow.programs.profiling.summary import Part
from golow.programs.profiling.way_down.way_down_record import WayDown
from golow.records.comparison import Environment, LayerTime, Quantity, TensorError
from golow.records.record import Record
from golow.records.workload import Workload


class LevelProfile(Record, frozen=True, kw_only=True):
    """One level.

    verdict, reason: of the check, before anything was timed. time: seconds of an iteration in a
    race without a profiler. profiled: seconds of a step under the profiler, the mean. summary:
    what a step's time went to. gpu: None without kernels. idle: why the GPU was idle. copies: to,
    from and on a device, by kind. layers: on a device the kernels of each layer, on a CPU the
    level's steps, timed separately without a profiler; layers_missing: why there are none. memory:
    over one step; memory_missing: why there is none. missing: why there is no profile. worst: of a
    level that matches, the tensor closest to its limit. communication: of several ranks; all else
    is of rank 0.
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
    copies: tuple[CopyTime, ...] = ()
    layers: tuple[LayerTime, ...] = ()
    layers_missing: str = ""
    memory: MemoryProfile | None = None
    memory_missing: str = ""
    trace: str = ""
    missing: str = ""
    worst: TensorError | None = None
    communication: Communication | None = None


class Finding(Record, frozen=True, kw_only=True):
    """Finding of a rule of `golow.programs.profiling.advice` at a level, from measured facts only.

    name: of the rule. figures: what was measured. faster: a level of the same profile that was
    measured to be faster; empty if none was. layers: where it is, the longest first. reason: why,
    if that is known. gain: seconds of a step without a profiler that are at stake, an upper bound
    by which findings are ordered, no promise; 0 if it is not about time. command: what to type
    next; empty if a command line cannot name the workload.
    """

    name: str
    level: str
    figures: tuple[Quantity, ...]
    faster: str = ""
    layers: tuple[str, ...] = ()
    reason: str = ""
    gain: float = 0.0
    command: str = ""

    def figure(self, name: str) -> float | None:
        """The value of the figure of that name; None if there is none."""
        return next((figure.value for figure in self.figures if figure.name == name), None)


class Profile(Record, frozen=True, kw_only=True):
    """A workload in one precision, at several levels, and where they ran: None in the records of an
    earlier golow. work: what each layer of its graph needs at least; empty if it could not be
    captured. peak: of the machine; None if it was not measured. ways: the ways down of layers that
    were counted instead of a profile. findings: what to do about it, the largest possible gain
    first. interrupted: True if Ctrl-C ended it before every level was profiled."""

    workload: Workload
    levels: tuple[LevelProfile, ...]
    environment: Environment | None = None
    work: tuple[LayerWork, ...] = ()
    peak: Peak | None = None
    ways: tuple[WayDown, ...] = ()
    findings: tuple[Finding, ...] = ()
    interrupted: bool = False
