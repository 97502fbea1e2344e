"""Results of each level: checks, times and conditions; and the comparison that they make up."""

from __future__ import annotations

from typing import Literal

from golow.records.record import Record
from golow.records.workload import Device, LayerPhase, Workload

VerdictName = Literal["match", "differs", "failed", "unavailable"]
Word = Literal["faster", "slower", "same", "unclear"]


class Quantity(Record, frozen=True, kw_only=True):
    """A number with its name, unit and, if it is an estimate, its 95% interval."""

    name: str
    unit: str
    value: float
    low: float | None = None
    high: float | None = None


class Ratio(Record, frozen=True, kw_only=True):
    """Time of a level over time of ``eager`` in the same rounds; below 1 is faster."""

    value: float
    low: float
    high: float
    word: Word


class TensorError(Record, frozen=True, kw_only=True):
    """How far one tensor is from the float64 reference, and the limit.

    Errors are root mean squares over the tensor's elements, in the tensor's own unit. zero_scale:
    if the exact value is zero, the size of what cancels there, so that the error has a size to be
    compared with; else 0. infinite: at how many elements an output has the same infinity as the
    reference; they have no error.
    """

    name: str
    elements: int
    scale: float
    error: float
    eager_error: float
    limit: float
    passed: bool
    zero_scale: float = 0.0
    infinite: int = 0


class Located(Record, frozen=True, kw_only=True):
    """The first wrong operation of a level.

    operation: of the captured graph; empty if every value is right once it is returned, so that the
    fault is in a fusion of operations that follow ``after``. value: the name of its result. layer:
    the path of the layer. after: the last right value before it. error, limit: shares of the
    value's size. builds: number of builds of the level for this search.
    """

    operation: str = ""
    value: str = ""
    layer: str = ""
    after: str = ""
    error: float = 0.0
    limit: float = 0.0
    builds: int = 0

    @property
    def words(self) -> str:
        """Describe it in a sentence."""
        after = f" after {self.after}" if self.after else ""
        if not self.operation:
            return f"every value is right if it is also an output: the fault is in a fusion{after}"
        where = f" of layer {self.layer}" if self.layer else " in the model's forward pass"
        return (
            f"first wrong at {self.operation}{where}{after}: {self.value} is off by "
            f"{self.error:.2g} of its size; rounding explains {self.limit:.1g}"
        )


class StepError(Record, frozen=True, kw_only=True):
    """Distance of one operation's result from the float64 result for the same operands.

    value: its name in the level's graph. layer: the path of the layer. share: of what one
    operation's rounding explains; above 1 it is wrong. hard: why the values that replaced its
    operands are hard; empty if none did.
    """

    value: str
    operation: str
    layer: str
    share: float
    hard: str = ""

    @property
    def words(self) -> str:
        """Describe it in a sentence."""
        where = f" of layer {self.layer}" if self.layer else ""
        operation = self.operation.removeprefix("golow.")
        given = f", given {self.hard}," if self.hard else ""
        result = f"{operation}{where} ({self.value}){given}"
        return f"{result} is off by {self.share:.3g} times its rounding"


class StepsCheck(Record, frozen=True, kw_only=True):
    """Every operation of a level's plan against float64, from what the operation itself read.

    count: checked results. failed: how many are wrong; wrong: the first of them,
    in the order in which they run. worst: the largest share of a limit.
    """

    count: int
    failed: int = 0
    worst: StepError | None = None
    wrong: tuple[StepError, ...] = ()

    @property
    def words(self) -> str:
        """Describe it in a sentence."""
        if self.wrong:
            return f"{self.wrong[0].words}, the first of {self.failed} of {self.count} results"
        accurate = f"each of {self.count} results is as accurate as rounding allows"
        if self.worst is None:
            return accurate
        share = f"{self.worst.share:.0%}" if self.worst.share >= LEAST_SHARE else "below 1%"
        return f"{accurate}: the largest error is {share} of its limit"


LEAST_SHARE = 0.005
"""The least share of a limit that is stated in whole percent."""


WEAK = 0.05
"""Change of one layer that a check should see."""


class Power(Record, frozen=True, kw_only=True):
    """The smallest change that the check of a level's results sees, at the layer where it sees
    least.

    layer: the name of its weight. share: of these weights, moved at random (in training, of their
    gradient).
    """

    layer: str
    share: float

    @property
    def weak(self) -> bool:
        """True if it would miss what it should see."""
        return self.share > WEAK


class Check(Record, frozen=True, kw_only=True):
    """The result of the correctness check for a level, with the figures of every tensor. located:
    where a level that differs begins to, if that was requested. steps: the operations of a direct
    level's plan, each by itself. power: what the check of a level without such steps can see, if it
    sees little."""

    verdict: VerdictName
    reason: str = ""
    worst: TensorError | None = None
    tensors: tuple[TensorError, ...] = ()
    located: Located | None = None
    steps: StepsCheck | None = None
    power: Power | None = None

    @property
    def word(self) -> str:
        """The verdict, with what it is worth."""
        weak = self.verdict == "match" and self.power is not None and self.power.weak
        return f"{self.verdict} (weak)" if weak else self.verdict

    @property
    def words(self) -> str:
        """Why the verdict is not a match, and where that begins if it is known."""
        return f"{self.reason}; {self.located.words}" if self.located else self.reason


class Sample(Record, frozen=True, kw_only=True):
    """The result of one ``time`` request: iterations in nanoseconds, and how calm the block was.

    wait_share: run-queue wait of all the worker's threads over the block's wall time; None if the
    system does not report it. wall_ns: nanoseconds of the whole request by the parent's clock.
    results: of every iteration, untimed ones included, if there was a challenge. busy_ns: processor
    time of the worker and its children, from the end of the `time` request before, if nothing else
    was asked meanwhile; None if the system does not report it. rank_ns: as in `Block`.
    """

    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...] = ()
    wait_share: float | None = None
    wall_ns: int = 0
    results: tuple[float, ...] = ()
    busy_ns: int | None = None
    rank_ns: tuple[tuple[int, ...], ...] = ()


class LayerTime(Record, frozen=True, kw_only=True):
    """One step of a level: a layer, a part of one, or several that run as one.

    modules: paths of the layers it covers, in order; empty text is the top of the model.
    operation: what the step does, in the level's own term. ns: nanoseconds in each iteration.
    kernels: what it puts on the device in an iteration; None if that was not counted.
    """

    modules: tuple[str, ...]
    phase: LayerPhase
    operation: str
    ns: tuple[int, ...]
    kernels: float | None = None


class GpuState(Record, frozen=True, kw_only=True):
    """The state of the GPU at one moment, as the driver reports it.

    reasons: why the clocks are not at their highest, under NVML's names. other_processes: number
    of programs on the GPU that are not workers of this comparison.
    """

    clock_mhz: int
    memory_clock_mhz: int
    temperature_c: int
    power_w: float
    utilization_percent: int
    reasons: tuple[str, ...] = ()
    other_processes: int = 0


class Block(Record, frozen=True, kw_only=True):
    """The iterations of one level in one round, raw.

    host_ns: nanoseconds of each timed iteration on the worker's monotonic clock. device_ns:
    nanoseconds on the device's own clock, if there is a device. wait_share: run-queue wait of the
    worker's threads over the block's wall time; None if the system does not report it. attempts:
    how often the block was measured until it was clean or the limit ended it. gpu: the GPU's state
    right after the block. throttled: heat or power slowed the GPU down during the block. wall_ns:
    nanoseconds of the whole request by the parent's clock, untimed iterations included; 0 in older
    records. wrote: bytes of weights that the request had the worker write before the first
    iteration. busy_ns: processor time of the worker's processes in the block and in the pause
    before it; None if the system does not report it. rank_ns: of a training run by several ranks,
    the quoted nanoseconds of each; host_ns and device_ns are then the slowest rank's.
    """

    round: int
    position: int
    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...] = ()
    wait_share: float | None = None
    wall_ns: int = 0
    wrote: int = 0
    busy_ns: int | None = None
    contended: bool = False
    attempts: int = 1
    gpu: GpuState | None = None
    throttled: bool = False
    rank_ns: tuple[tuple[int, ...], ...] = ()

    @property
    def quoted_ns(self) -> tuple[int, ...]:
        """The nanoseconds from which figures are made, and which are therefore the ones verified:
        the device's if the level runs on one, else the host's."""
        return self.device_ns or self.host_ns


class Conditions(Record, frozen=True, kw_only=True):
    """The conditions of a run: how the process was configured and how calm the machine was.

    contended_share: share of blocks that stayed contended. rounds_used: whether the figures use
    only clean rounds, or all because too few were clean. resident_with: the levels loaded at the
    same time. cache: ``cold`` if the GPU's L2 cache was emptied before each iteration.
    throttled_share: share of blocks that stayed throttled by heat or power.
    """

    threads: int
    affinity: tuple[int, ...]
    precision: str
    wait_policy: str
    contended_share: float = 0.0
    rounds_used: Literal["clean", "all", ""] = ""
    resident_with: tuple[str, ...] = ()
    device: Device = "cpu"
    cache: Literal["warm", "cold"] = "warm"
    throttled_share: float = 0.0


class Environment(Record, frozen=True, kw_only=True):
    """The machine and the software, which must be the same before two runs may be compared."""

    cpu_model: str
    cpu_flags: tuple[str, ...]
    cores: int
    affinity: tuple[int, ...]
    memory_bytes: int
    governor: str
    kernel: str
    container_limits: dict[str, str]
    gpu: tuple[str, ...]
    driver: str
    python: str
    versions: dict[str, str]
    thread_settings: dict[str, str]
    model_git: dict[str, str] = {}


class Run(Record, frozen=True, kw_only=True):
    """The record of one level on one workload.

    layers: times step by step, in order of execution, if requested. layers_missing: why there are
    none. device: the figures of a GPU, as far as measured (``enqueue``: the host's seconds per
    iteration; ``energy`` in joules per iteration, ``power``, ``utilization``; ``copied`` bytes and
    ``copy_time`` from host to device per iteration). choices: the values in effect of the choices
    that the worker can read, by name.
    """

    format_version: int
    id: str
    created: str
    level: str
    workload: Workload
    check: Check
    environment: Environment
    conditions: Conditions
    blocks: tuple[Block, ...] = ()
    time: Quantity | None = None
    ratio: Ratio | None = None
    memory: tuple[Quantity, ...] = ()
    life: tuple[Quantity, ...] = ()
    build_cached: bool = False
    payback_iterations: float | None = None
    notes: tuple[str, ...] = ()
    log: str = ""
    layers: tuple[LayerTime, ...] = ()
    layers_missing: str = ""
    device: tuple[Quantity, ...] = ()
    choices: dict[str, str] = {}

    def quantity(self, name: str) -> float | None:
        """The memory, life-cycle or device figure of that name; None if it was not measured."""
        for quantity in (*self.memory, *self.life, *self.device):
            if quantity.name == name:
                return quantity.value
        return None


class RaceSummary(Record, frozen=True, kw_only=True):
    """The course of a race: its rounds, what ended it, and how calm the machine was."""

    rounds: int
    seed: int
    stopped_because: Literal["interval", "time limit", "interrupted", "nothing to time"]
    interval_target: float
    seconds: float
    contended_share: float


class Comparison(Record, frozen=True, kw_only=True):
    """All levels of one workload, measured in one race; eager is the baseline of the ratios."""

    format_version: int
    id: str
    created: str
    workload: Workload
    race: RaceSummary
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()
