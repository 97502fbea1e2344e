"""The frozen records that pass between the stages, and the errors that the stages raise.

Format history (every file contains ``FORMAT_VERSION``; ``programs/comparison/store.py`` reads older ones):

1   November 2026, the first: one JSON file per run, one ``comparison.json`` per comparison.
    Added later, with defaults, so that old and new versions read each other's files:
    ``Run.layers``, ``Run.layers_missing``, and for GPUs ``Workload.device``, ``Block.gpu``,
    ``Block.throttled``, ``Conditions.device``, ``Conditions.cache``,
    ``Conditions.throttled_share`` and ``Run.device``. For the proof of timed iterations:
    ``Block.wall_ns``. For the audit of choices: ``Run.choices``. For draws that are given:
    ``Workload.draws``. For tensors that are zero: ``TensorError.zero_scale``. For optimizers:
    the fields of ``Optimizer`` beyond its first three.

Nothing here imports torch, so that a worker without a framework can read these records.
A number is a `Quantity`: name, unit, value and, if it is an estimate, its 95% interval.
Only ``report/`` turns one into text.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FORMAT_VERSION = 1

Mode = Literal["infer", "train"]
VerdictName = Literal["match", "differs", "failed", "unavailable"]
Word = Literal["faster", "slower", "same", "unclear"]
LayerPhase = Literal["forward", "backward", "update"]
Device = Literal["cpu", "cuda"]
Precision = Literal["default", "ieee", "tf32", "bf16", "fp16"]
Phase = Literal["", "prefill", "decode"]


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Base of all records: immutable, built by keyword, compared by value."""


# ---------------------------------------------------------------- workload


class ModelSource(Record, frozen=True, kw_only=True):
    """Where a worker finds the module.

    kind: ``zoo`` (name), ``file`` (path and attribute), ``import`` (dotted module and attribute),
    ``pickle`` (a live module that golow wrote into the bundle), ``program`` (a .pt2 file),
    ``huggingface`` (a class of transformers and its configuration) or ``timm`` (a name).
    keywords: the names by which the forward pass takes the inputs, where it takes them by name.
    settings: what else it is called with. configuration: of transformers, as JSON. pretrained:
    whether the weights are those that its publisher trained.
    """

    kind: Literal["zoo", "file", "import", "pickle", "program", "huggingface", "timm"]
    name: str
    attribute: str = ""
    arguments: dict[str, int] = {}
    sha256: str = ""
    keywords: tuple[str, ...] = ()
    settings: dict[str, int] = {}
    configuration: str = ""
    pretrained: bool = False


OptimizerName = Literal["sgd", "adam", "adamw", "rmsprop"]
OptimizerState = Literal["momentum", "square"]
# The kinds of what an optimizer keeps from step to step, of each parameter and as a whole.
KEPT = ("momentum", "square", "steps")

# Momentum and weight decay where the user gives none: of PyTorch, except SGD's momentum.
_DEFAULTS = {"sgd": (0.9, 0.0), "adam": (0.0, 0.0), "adamw": (0.0, 0.01), "rmsprop": (0.0, 0.0)}


class Optimizer(Record, frozen=True, kw_only=True):
    """One of torch.optim's optimizers with its settings, as PyTorch defines it.

    momentum: of sgd (0.9 unless given) and rmsprop (0). weight_decay: 0.01 for adamw unless given,
    else 0. nesterov: sgd's other form. betas: of adam and adamw. smoothing: rmsprop's ``alpha``.
    epsilon: of all but sgd. clip: the largest norm of all gradients together; longer ones are
    scaled down to it before the step, as by torch.nn.utils.clip_grad_norm_.
    """

    name: OptimizerName = "sgd"
    learning_rate: float = 0.001
    momentum: float = None  # type: ignore[assignment]  # replaced below
    weight_decay: float = None  # type: ignore[assignment]
    nesterov: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    smoothing: float = 0.99
    epsilon: float = 1e-8
    clip: float | None = None

    def __post_init__(self) -> None:
        momentum, decay = _DEFAULTS.get(self.name, (0.0, 0.0))
        if self.momentum is None:
            msgspec.structs.force_setattr(self, "momentum", momentum)
        if self.weight_decay is None:
            msgspec.structs.force_setattr(self, "weight_decay", decay)

    @property
    def keeps(self) -> tuple[OptimizerState, ...]:
        """What it keeps of each parameter: running means of its gradients and of their squares."""
        if self.name in ("adam", "adamw"):
            return ("momentum", "square")
        squares: tuple[OptimizerState, ...] = ("square",) if self.name == "rmsprop" else ()
        return (*squares, "momentum") if self.momentum else squares

    @property
    def counts_steps(self) -> bool:
        """Whether its update depends on how many steps it has made."""
        return self.name in ("adam", "adamw")

    def __str__(self) -> str:
        """Its name and its settings beside the learning rate: ``SGD, momentum 0.9``."""
        words = [{"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}[self.name]]
        if self.name in ("sgd", "rmsprop"):
            kind = "Nesterov momentum" if self.nesterov else "momentum"
            words += [f"{kind} {self.momentum:g}"]
        else:
            words += [f"betas {self.betas[0]:g} and {self.betas[1]:g}"]
        if self.name == "rmsprop":
            words += [f"smoothing {self.smoothing:g}"]
        words += [f"weight decay {self.weight_decay:g}"]
        if self.clip is not None:
            words += [f"gradients clipped to a norm of {self.clip:g}"]
        return ", ".join(words)


class TensorType(Record, frozen=True, kw_only=True):
    """Shape and dtype (torch's name without the prefix, e.g. ``float32``) of one tensor."""

    shape: tuple[int, ...]
    dtype: str


class Workload(Record, frozen=True, kw_only=True):
    """All that a level has to execute: a model, its inputs, batch size, precision and mode.

    precision: ``default`` is PyTorch's own (on a GPU, TF32 in convolutions and IEEE float32 in
    matrix products), ``ieee`` is float32 everywhere, ``tf32`` is TF32 wherever the hardware has it,
    ``bf16`` and ``fp16`` follow autocast, with float32 master weights. inputs: the types of one
    batch, batch dimension first, and of the draws that are given behind them. draws: their number.
    random_layers: paths of the layers that drop something in training, and names of functions that
    do. phase: of text generation, ``prefill`` or ``decode``. tokens: of text, that one iteration
    processes, of all samples together; 0 where samples are no text. digest: identifies the content
    (source, weights, shapes, mode), so that equal workloads can be recognised.
    """

    model: str
    source: ModelSource
    mode: Mode
    batch: int
    inputs: tuple[TensorType, ...]
    targets: tuple[TensorType, ...] = ()
    device: Device = "cpu"
    precision: Precision = "default"
    loss: str = ""
    optimizer: Optimizer = Optimizer()
    initialisation: str = "default"
    seed: int = 0
    weights: str = ""
    data: str = ""
    batches: int = 4
    threads: int = 1
    parameters: int = 0
    random_layers: tuple[str, ...] = ()
    draws: int = 0
    phase: Phase = ""
    tokens: int = 0
    digest: str = ""


# ---------------------------------------------------------------- results


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
    compared with; else 0.
    """

    name: str
    elements: int
    scale: float
    error: float
    eager_error: float
    limit: float
    passed: bool
    zero_scale: float = 0.0


class Located(Record, frozen=True, kw_only=True):
    """Where the results of a level begin to be off.

    operation: of the captured graph; empty if every value is right once it is returned, so that the
    fault lies in how operations behind ``after`` are joined. value: the name of its result. layer:
    the path of the layer. after: the last value before it that is right. error, limit: shares of
    the value's size. builds: how often the level was built to find out.
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
        """It as a sentence."""
        behind = f" behind {self.after}" if self.after else ""
        if not self.operation:
            return f"every value is right once it is returned: the fault lies in a fusion{behind}"
        where = f" of layer {self.layer}" if self.layer else " in the model's own forward"
        return (
            f"first off at {self.operation}{where}{behind}: {self.value} by {self.error:.2g} of "
            f"its size, where {self.limit:.1g} would be rounding"
        )


class Check(Record, frozen=True, kw_only=True):
    """The result of the correctness check for a level, with the figures of every tensor. located:
    where a level that differs begins to, if that was asked for."""

    verdict: VerdictName
    reason: str = ""
    worst: TensorError | None = None
    tensors: tuple[TensorError, ...] = ()
    located: Located | None = None

    @property
    def words(self) -> str:
        """Why the verdict is not a match, and where that begins if it is known."""
        return f"{self.reason}; {self.located.words}" if self.located else self.reason


class Sample(Record, frozen=True, kw_only=True):
    """The result of one ``time`` request: iterations in nanoseconds, and how calm the block was.

    wait_share: run-queue wait of all the worker's threads over the block's wall time; None if the
    system does not report it. wall_ns: nanoseconds of the whole request by the parent's clock.
    results: of every iteration, untimed ones included, if there was a challenge.
    """

    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...] = ()
    wait_share: float | None = None
    wall_ns: int = 0
    results: tuple[float, ...] = ()


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

    host_ns: nanoseconds of each timed iteration on the worker's monotonic clock.
    device_ns: nanoseconds on the device's own clock, if there is a device.
    wait_share: run-queue wait of the worker's threads over the block's wall time; None if the
    system does not report it.
    attempts: how often the block was measured until it was clean or the limit ended it.
    gpu: the GPU's state right after the block. throttled: heat or power slowed the GPU down during
    the block. wall_ns: nanoseconds of the whole request by the parent's clock, untimed iterations
    included; 0 in older records. wrote: bytes of weights that the request had the worker write
    before the first iteration.
    """

    round: int
    position: int
    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...] = ()
    wait_share: float | None = None
    wall_ns: int = 0
    wrote: int = 0
    contended: bool = False
    attempts: int = 1
    gpu: GpuState | None = None
    throttled: bool = False


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
    ``copy_time`` from host to device per iteration). choices: the values in force of the choices
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


# ---------------------------------------------------------------- errors


class GolowError(Exception):
    """An error that the user can fix: the message says what is wrong, ``hint`` what to do next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Both, as a traceback and a notebook show them."""
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class Unsupported(Exception):
    """The level does not support this workload. No other exception means this.

    node: the graph's name of the operation. module: the path of the layer that it comes from.
    """

    def __init__(self, level: str, reason: str, node: str = "", module: str = "") -> None:
        self.level, self.reason, self.node, self.module = level, reason, node, module
        super().__init__(f"{level} does not support this workload: {self.words}")

    @property
    def words(self) -> str:
        """The reason, with the node and its layer where there is one."""
        if not self.node:
            return self.reason
        # What the outermost forward calls itself is in no layer.
        layer = f"layer {self.module}" if self.module else "in the model's own forward"
        return f"{self.reason} (node {self.node}, {layer})"


class WorkerFailure(Exception):
    """A worker died, hung, ran out of memory or broke the protocol; this is a recorded result."""

    def __init__(self, kind: str, message: str, log: str = "") -> None:
        super().__init__(message)
        self.kind, self.message, self.log = kind, message, log


def encode(record: Any) -> bytes:
    """The record as JSON, indented so that people can read it."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
