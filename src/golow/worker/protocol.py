"""The words of the worker protocol; ``docs/extend/protocol.md`` defines them.

Nothing here imports a framework: the parent and every Python worker share this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from golow.records.comparison import LayerTime
from golow.records.record import Record
from golow.records.workload import LayerPhase

if TYPE_CHECKING:
    pass


VERSION = 3
"""The version of the protocol. A worker states it when it answers `load`.

3   every marked element has its own value, which the worker computes from a seed; a chain makes an
    iteration's values depend on the result of the one before.
2   a `time` request may carry a challenge, and `result` hands over an iteration's whole result.
1   the first.
"""

Checksum = int | tuple[int, ...]
"""Checksum of the samples that a process consumed; of several ranks, one of each."""


STEP, PHASE, LAYER, SITE = "golow step ", "golow phase ", "golow layer ", "golow line "
"""Beginnings of the annotations in a trace that a worker writes when it is profiled: the number
of an iteration, a phase (forward, backward, update), the path of a module, or file and line of the
user's code follow."""


MEMORY = "golow memory"
"""The key of a trace under which a worker states what is held after each iteration: a list of
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
    """Tensors that a worker holds after an iteration, by the number that the trace gives it.

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
    result of the iteration before is stored. previous: that result for the first iteration, if
    there is one.
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
    """A `time` request: this many untimed, then this many timed iterations.

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
    rank_ns: of several ranks, the nanoseconds of each; no worker states this itself.
    """

    host_ns: tuple[int, ...]
    device_ns: tuple[int, ...] | None = None
    last: float | None = None
    results: tuple[float | None, ...] = ()
    rank_ns: tuple[tuple[int, ...], ...] = ()


class CopiesReport(Record, frozen=True, kw_only=True):
    """The answer to `copies`, per iteration: bytes from host to device, nanoseconds of their
    copies, and the kind of host memory: ``pageable``, ``pinned``, both, or ``none``."""

    bytes: int
    nanoseconds: int
    kind: str


class LayersReport(Record, frozen=True, kw_only=True):
    """The answer to `layers`: the steps of an iteration in order of execution. ranks: of several,
    those of each; no worker states this itself."""

    layers: tuple[LayerTime, ...]
    ranks: tuple[tuple[LayerTime, ...], ...] = ()


class PlannedStep(Record, frozen=True, kw_only=True):
    """A step of a plan: what it does, the layer that it is for, and the phase."""

    operation: str
    layer: str
    phase: LayerPhase


class PlannedBuffer(Record, frozen=True, kw_only=True):
    """A piece of memory of a plan.

    place, offset: the memory that it is in, such as the arena, and the first of its bytes there.
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
    """The answer to `choices`: the values in effect, by the name of the choice."""

    choices: dict[str, str]


class EpochReport(Record, frozen=True, kw_only=True):
    """The answer to `epoch`: the loss of each batch, None if it is not finite; crc32 over the
    pixels and labels that were consumed, of several ranks that of each; total nanoseconds."""

    losses: tuple[float | None, ...]
    checksum: Checksum
    nanoseconds: int


class PredictReport(Record, frozen=True, kw_only=True):
    """The answer to `predict`: the nanoseconds of all its batches."""

    nanoseconds: int


GRAPH_OF_VALUES = ".graph.json"
"""After the name of the first file of values: the graph whose nodes make them."""


class StoredValue(Record, frozen=True, kw_only=True):
    """Where a value is in a file of values.

    held: the type in which the level holds it. dtype: of its elements in the file, which begin at
    the offset, in bytes, without gaps. shape: of the value. order: its axes in the file, the
    outermost first.
    """

    held: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    order: tuple[int, ...]


class ValuesReport(Record, frozen=True, kw_only=True):
    """The answer to `values`.

    following: the position of the first node whose values are not in the file; None after the last.
    stored: the values of the file, by name, as they were made. hard: the values that were then
    replaced by hard ones; replaced: of those of the file in such memory, what later operations read
    there.
    """

    following: int | None
    stored: dict[str, StoredValue]
    replaced: dict[str, StoredValue] = {}
    hard: tuple[str, ...] = ()


def line(answer: dict[str, Any]) -> bytes:
    """One message in the protocol's encoding."""
    return msgspec.json.encode(answer) + b"\n"
