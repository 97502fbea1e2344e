"""The words of the worker protocol; ``docs/protocol.md`` defines them.

Nothing here imports a framework: the parent and every Python worker share this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from golow.records.comparison import LayerTime
from golow.records.record import Record
from golow.records.workload import LayerPhase, Mode, Workload

if TYPE_CHECKING:
    import numpy as np

    from golow.worker.feed import Feed


VERSION = 3
"""The version of the protocol. A worker states it when it answers `load`.

3   every marked element has its own value, which the worker computes from a seed; a chain makes an
    iteration's values depend on the result of the one before.
2   a `time` request may carry a challenge, and `result` hands over an iteration's whole result.
1   the first.
"""


STEP, PHASE, LAYER, SITE = "golow step ", "golow phase ", "golow layer ", "golow line "
"""What the annotations in a trace begin with that a worker writes when it is profiled: the number
of an iteration, a phase (forward, backward, update), the path of a module, or file and line of the
user's code follow."""


MEMORY = "golow memory"
"""The key of a trace under which a worker says what is held after each iteration: a list of
`Snapshot`."""

PARAMETERS, GRADIENTS, OPTIMIZER_STATE = "parameters", "gradients", "optimizer state"
INPUTS, WORKSPACE = "inputs", "workspace"
"""Categories of memory that a worker may know."""


class KnownBlock(Record, frozen=True, kw_only=True):
    """Memory that a worker knows: its category, a name, its address, and its bytes."""

    category: str
    name: str
    address: int
    bytes: int


class Snapshot(Record, frozen=True, kw_only=True):
    """What a worker holds after an iteration, by the number that the trace gives it.

    allocated, reserved: bytes that the device's allocator has given out and has taken itself; None
    on a CPU.
    """

    step: int
    blocks: tuple[KnownBlock, ...] = ()
    allocated: int | None = None
    reserved: int | None = None


class Marks(Record, frozen=True, kw_only=True):
    """Values that a block writes into its inputs, which no worker can know before the block.

    Before each iteration of the request, untimed ones included, elements ``start`` to
    ``start + length`` of every sample of the batch's input ``input`` become random numbers from
    ``low`` to ``high``, whole ones for an input of indices. `golow.worker.marking` computes them
    from the seed, of 32 bits, and the iteration's number.

    chain: None, or a width: the values then also depend on the cell of this width in which the
    result of the iteration before lies. previous: that result for the first iteration, if there is
    one.
    """

    input: int
    start: int
    length: int
    low: float
    high: float
    whole: bool
    seed: int
    chain: float | None = None
    previous: float | None = None


class Challenge(Record, frozen=True, kw_only=True):
    """Where the iterations of a `time` request begin, and what is written into their inputs. The
    worker answers with the result of each iteration.

    first: the number of the first iteration. reset: go back to the bundle's weights and to zero
    momentum before; training then uses this learning rate until the next reset.
    """

    first: int = 0
    reset: bool = True
    learning_rate: float = 0.0
    marks: Marks | None = None


class TimeRequest(Record, frozen=True, kw_only=True):
    """A `time` request: so many untimed, then so many timed iterations.

    cold: the device's L2 cache is emptied before each timed one.
    """

    iterations: int
    warmup: int
    cold: bool = False
    challenge: Challenge | None = None


class LoadReport(Record, frozen=True, kw_only=True):
    """The answer to `load`: seconds of each phase, the artifact's bytes, notes, and the version of
    the protocol that the worker speaks; a worker that does not state it speaks the first."""

    phases: dict[str, float]
    artifact_bytes: int | None = None
    cached: bool = False
    notes: tuple[str, ...] = ()
    protocol: int = 1


class TimeReport(Record, frozen=True, kw_only=True):
    """The answer to `time`: nanoseconds of each timed iteration, and the result of the last one;
    None if it is not finite.

    results: with a challenge, the result of every iteration, untimed ones included: in training
    the loss, in inference the outputs' elements times `golow.worker.results.weights`, summed.
    """

    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...] | None = None
    last: float | None = None
    results: tuple[float | None, ...] = ()


class CopiesReport(Record, frozen=True, kw_only=True):
    """The answer to `copies`, per iteration: bytes from host to device, nanoseconds of their
    copies, and the kind of host memory: ``pageable``, ``pinned``, both, or ``none``."""

    bytes: int
    nanoseconds: int
    kind: str


class LayersReport(Record, frozen=True, kw_only=True):
    """The answer to `layers`: the steps of an iteration in order of execution."""

    layers: tuple[LayerTime, ...]


class PlannedStep(Record, frozen=True, kw_only=True):
    """A step of a plan: what it does, the layer that it is for, and the phase."""

    operation: str
    layer: str
    phase: LayerPhase


class PlannedBuffer(Record, frozen=True, kw_only=True):
    """A piece of memory of a plan.

    place, offset: the memory that it lies in, such as the arena, and the first of its bytes there.
    first, last: the first and the last step that use it, the iteration's length for what is used
    after it. category: what it is for, if that is more than a step's result.
    """

    name: str
    place: str
    offset: int
    bytes: int
    first: int
    last: int
    category: str = ""


class ArenaReport(Record, frozen=True, kw_only=True):
    """The answer to `arena`: the steps of an iteration, in the order of `layers`, the buffers that
    they use, and the bytes of each place."""

    steps: tuple[PlannedStep, ...]
    buffers: tuple[PlannedBuffer, ...]
    sizes: dict[str, int]


class PythonFrame(Record, frozen=True, kw_only=True):
    """A frame of Python: the file of its code, and the function's qualified name."""

    file: str
    function: str


class CountReport(Record, frozen=True, kw_only=True):
    """The answer to `count`: the frames of Python, outermost first, in which most of a call's time
    passes; empty without Python."""

    frames: tuple[PythonFrame, ...] = ()


class ChoicesReport(Record, frozen=True, kw_only=True):
    """The answer to `choices`: the values in force, by the name of the choice."""

    choices: dict[str, str]


class EpochReport(Record, frozen=True, kw_only=True):
    """The answer to `epoch`: the loss of each batch, None if it is not finite; crc32 over the
    pixels and labels that were consumed; total nanoseconds."""

    losses: tuple[float | None, ...]
    checksum: int
    nanoseconds: int


class PredictReport(Record, frozen=True, kw_only=True):
    """The answer to `predict`: the nanoseconds of all its batches."""

    nanoseconds: int


GRAPH_OF_VALUES = "graph"
"""In the metadata of a file of values: the graph whose nodes make them, as JSON."""


class ValuesReport(Record, frozen=True, kw_only=True):
    """The answer to `values`.

    following: the position of the first node whose values are not in the file; None behind the
    last. stored: the type in which the level holds each value of the file.
    """

    following: int | None
    stored: dict[str, str]


class Program(Protocol):
    """What a Python worker serves: one level that runs one workload."""

    def load(self, bundle: Path) -> LoadReport:
        """Build and load: everything that is not an iteration."""

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Run these batches from the bundle's weights and write the tensors to the file."""

    def iterate(self) -> None:
        """One iteration on the next batch; returns when it is done, or enqueued on a device."""

    def last(self) -> float:
        """The loss, or the first output element, of the last iteration."""

    def allocated_peak(self) -> int | None:
        """Peak bytes of one iteration beyond those held before it."""


@runtime_checkable
class VerifiableProgram(Program, Protocol):
    """A program whose timed iterations can be verified; a comparison requires it."""

    def reset(self, learning_rate: float) -> None:
        """Go back to the bundle's weights and a new optimizer; training then uses this rate."""

    def seek(self, iteration: int) -> None:
        """Let the next iteration be that one: it uses batch ``iteration`` modulo their number."""

    def marked(self, marks: Marks) -> AbstractContextManager[Callable[[int], None]]:
        """A function that writes the values from that place of the row (`values_of`) on into the
        marked part of the next iteration's batch, enqueued on a device; on leaving, the batches are
        the bundle's again."""

    def keep(self) -> None:
        """Keep the result of the last iteration; on a device this is enqueued."""

    def kept(self) -> list[float]:
        """The results kept since the last call, in order; waits for a device."""

    def write_result(self, file: Path) -> None:
        """Write the whole result of the last iteration to the file."""


@runtime_checkable
class ChoosingProgram(Program, Protocol):
    """A program that takes alternatives to what is chosen by default, and says what is in force."""

    def choose(self, names: Sequence[str]) -> None:
        """Make these alternatives; called before each `load`."""

    def choices(self, names: Sequence[str]) -> dict[str, str]:
        """The values in force of the choices with these names, as far as it can read them."""


@runtime_checkable
class DividedProgram(Program, Protocol):
    """A program that can also be timed layer by layer; others lack the method, or raise
    `Unsupported` with the reason."""

    def layers(self, iterations: int) -> tuple[LayerTime, ...]:
        """Run that many iterations and time each step separately."""


@runtime_checkable
class ProfiledProgram(Program, Protocol):
    """A program that can write down what happens in an iteration; others lack the method, or raise
    `Unsupported` with the reason."""

    def profile(self, iterations: int, file: Path) -> None:
        """Run that many iterations and write their trace, in Chrome's trace event format, to the
        file. Each is an event ``golow step N`` of the category ``user_annotation``."""


@runtime_checkable
class PlannedProgram(Program, Protocol):
    """A program whose memory is planned before it runs; others lack the method, or raise
    `Unsupported` with the reason."""

    def arena(self) -> ArenaReport:
        """The plan of an iteration's memory."""


@runtime_checkable
class StepwiseProgram(Program, Protocol):
    """A program that runs the operations of a graph one after the other, and can hand over what
    each of them makes; others lack the method."""

    def values(
        self, batch: int, learning_rate: float, first: int, most: int, file: Path
    ) -> ValuesReport:
        """Run one iteration on that batch from the bundle's weights, with random layers off; write
        the values that its nodes make from that position on, up to so many bytes, into the file.
        Gradients are of the loss as the level scales it."""


@runtime_checkable
class CountedProgram(Program, Protocol):
    """A program whose instructions can be counted; others lack the method, or raise
    `Unsupported` with the reason."""

    def bare_call(self) -> AbstractContextManager[Callable[[], object]]:
        """A function that runs one forward pass on the first batch, with nothing of golow's around
        it."""


class Stopwatch(Protocol):
    """A device's events around iterations that are enqueued without waiting."""

    def flush(self) -> None:
        """Enqueue a write of twice the size of the device's L2 cache, which empties it."""

    def start(self, iteration: int) -> None:
        """Enqueue the event before the iteration of that number, from 0."""

    def stop(self, iteration: int) -> None:
        """Enqueue the event after it."""

    def nanoseconds(self) -> tuple[int, ...]:
        """Wait for the device once; the device time of each iteration."""


@runtime_checkable
class WakingProgram(Protocol):
    """A program whose large imports happen only when it loads a workload."""

    def wake(self, mode: Mode) -> None:
        """Import what loading a workload of that mode needs."""


@runtime_checkable
class DeviceProgram(Program, Protocol):
    """A program that may run on a device; the device's own clock then times it."""

    def stopwatch(self, iterations: int) -> Stopwatch | None:
        """Events for that many iterations; None if it runs on the CPU, whose clock then times
        it."""


@runtime_checkable
class FedProgram(Program, Protocol):
    """A program that can also be fed from the host, to measure copies; others lack the method, or
    raise `Unsupported` with the reason."""

    def copies(self, iterations: int) -> CopiesReport:
        """Run that many iterations, each batch copied from ordinary host memory."""


@runtime_checkable
class TrainableProgram(Program, Protocol):
    """A program that can also train whole epochs, for a training workload."""

    workload: Workload

    def epoch(self, feed: Feed, rates: Sequence[float]) -> list[float]:
        """Train on each batch of the feed with its own learning rate, from the current state; the
        loss of each. Returns when the device has finished, with one wait."""

    def save(self, file: Path) -> None:
        """Write parameters, buffers, what the optimizer keeps and, in fp16, the loss scale."""

    def restore(self, file: Path) -> None:
        """Continue from a file that `save` wrote; what the optimizer keeps is zero if missing."""


@runtime_checkable
class PredictingProgram(Program, Protocol):
    """A program that can also run a whole data set, for an inference workload."""

    workload: Workload

    def predict(self, feed: Feed) -> np.ndarray:
        """The output for every row of the feed, float32 [rows, ...]."""

    def restore(self, file: Path) -> None:
        """Take parameters and buffers from a file that a training program's `save` wrote, and
        derive again everything that depends on them."""


def line(answer: dict[str, Any]) -> bytes:
    """One message in the protocol's encoding."""
    return msgspec.json.encode(answer) + b"\n"
