"""A plan of cuDNN in the caller's own process, called on device memory that the caller has, on the
caller's stream.

Nothing here imports a framework: inputs, outputs and streams are numbers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from golow.levels.direct.bundle_arrays import Batch, Read
from golow.levels.direct.cudnn.bindings.pointed_graph import PointedGraph, Turns
from golow.levels.direct.cudnn.engines.engines import Engines
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.run.device_memory import NO_STATE
from golow.levels.direct.cudnn.run.engine_refinement import refine
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.run.kept_buffers import KeptBuffers
from golow.levels.direct.cudnn.run.shared_weights import SharedWeights
from golow.levels.direct.cudnn.shared_kernels.likeliest import likeliest
from golow.levels.direct.cudnn.steps.built_plan import Built, Tensor
from golow.levels.direct.cudnn.steps.returned_values import copy_out, made_outputs
from golow.levels.nvidia.memory import Region
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Plan
from golow.records.workload import Precision

building = threading.RLock()
"""Plans of one GPU load and are captured on the same streams: one thread at a time."""


class Arena:
    """The memory of iterations of several plans, of which one runs at a time; size in bytes.
    number: of these plans."""

    def __init__(self, size: int, number: int) -> None:
        self.region = Region(size)
        self.turns = Turns() if number > 1 else None


class CalledPlan:
    """The plan of a lowered graph in inference, with its weights.

    graph: after the level's passes. read(kind, target): a parameter, buffer or constant, as graphs
    take it. engines: those of the GPU, for all sizes. given: types of inputs, by position, where
    these are not the graph's. outputs: the type in which the caller gets each output. tune: whether
    to choose engines by timing them, for up to some minutes. example: inputs to time them with, and
    to run once. kept: where buffers are that the plan changes, together with other plans of the
    network. sources: the graph's inputs by the names of their values. Raises `Unsupported` for
    operations without an engine, `MemoryError` if the GPU has no room.
    """

    def __init__(
        self,
        graph: Graph,
        read: Read,
        engines: Engines,
        *,
        precision: Precision,
        given: Mapping[str, str],
        outputs: Sequence[str],
        tune: bool,
        example: Batch,
        kept: KeptBuffers | None = None,
    ) -> None:
        self.gpu, self.output_types, self._example = engines.gpu, tuple(outputs), example
        self.sources = {item.value.name: item for item in graph.inputs}

        def built() -> Built:
            return build_plan(graph, engines, TYPES[precision], 1, given)

        with building:
            self.gpu.make_current()
            self.built = built()
            if tune and self._is_refined(engines, read):
                self.built = built()
            self._state = NO_STATE if kept is None else kept.shared(self.built)
            # Iterations run over other arenas.
            self._weights = self._execution(self.built, read, arena=Region(0))

    def _is_refined(self, engines: Engines, read: Read) -> bool:
        """Return True if other engines are faster in the whole iteration."""
        execution = Execution(self.built, self.gpu, self.sources, [self._example], read)
        execution.run(0)
        return refine(execution, engines)

    def _execution(self, built: Built, read: Read, arena: Region) -> Execution:
        sources, state = self.sources, self._state
        return Execution(built, self.gpu, sources, [], read, arena=arena, state=state)

    @property
    def plan(self) -> Plan:
        """Its steps and memory."""
        return self.built.plan

    def share(self, memory: SharedWeights) -> None:
        """Keep the weights in a memory that other plans of the same network share; before the first
        `running`."""
        with building:
            memory.take(self.gpu, self.plan, self._weights.memory)

    def load(self, read: Read) -> None:
        """Take other weights, in the memory of the present ones. No call may run meanwhile."""
        with building:
            self._weights.fill(read)

    def running(
        self, arena: Arena, current_stream: Callable[[], int], moving: Moving | None = None
    ) -> RunningPlan:
        """The plan over an arena, which must be as large as `plan` states, and these weights.
        current_stream: the stream of the caller. moving: as of `RunningPlan`."""
        with building:
            self.gpu.make_current()
            execution = Execution(
                self.built,
                self.gpu,
                self.sources,
                [],
                _no_weights,
                arena=arena.region,
                weights=self._weights,
                state=self._state,
            )
            return RunningPlan(
                execution, self._example, self.output_types, arena.turns, current_stream, moving
            )


class Moving(NamedTuple):
    """Texts of a step that chooses its next tokens: their number, the size of the vocabulary, and
    the tokens of the longest."""

    texts: int
    vocabulary: int
    longest: int


class RunningPlan:
    """A plan over one arena. Iterations follow one another: a call may be made before the one
    before it has ended.

    moving: an iteration is a step of a language model, of inputs tokens [texts, 1] and position and
    one output, the logits, and ends with the likeliest tokens: it writes them over its input, and
    into a text [texts, longest], its second output, and adds one to the position.
    """

    def __init__(
        self,
        execution: Execution,
        example: Batch,
        outputs: Sequence[str],
        turns: Turns | None,
        current_stream: Callable[[], int],
        moving: Moving | None = None,
    ) -> None:
        self._execution, self._gpu, self._stream = execution, execution.gpu, current_stream
        built = execution.built
        self._reads = [int(target) for kind, target in built.inputs if kind == "input"]
        tensors = made_outputs(built)
        landings = [
            Region(ITEM_BYTES[dtype] * math.prod(tensor.shape))
            for tensor, dtype in zip(tensors, outputs, strict=True)
        ]
        places = [
            execution.memory.input(built.inputs["input", str(position)].buffer)
            for position in self._reads
        ]
        execution.take_batches([example])
        at = dict(zip(self._reads, places, strict=True))
        choice = None if moving is None else Choice(moving, at, landings)

        def enqueue() -> None:
            execution.enqueue()
            for tensor, dtype, landing in zip(tensors, outputs, landings, strict=False):
                self._copy_out(tensor, dtype, landing.address)
            if choice is not None:
                self._gpu.launch(choice.kernel, choice.addresses)

        enqueue()  # libraries load their kernels on first use, not inside a graph
        self._gpu.synchronize()
        self._choice = choice  # the graph uses its memory
        self._graph = PointedGraph(self._gpu, enqueue, [*places, *landings], turns)
        require_pointed(self._graph, len(places) + len(landings))
        execution.memory.forget_inputs()

    def __call__(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Enqueue an iteration on inputs at these addresses, that writes the outputs to those, on
        the caller's stream."""
        self._graph.launch([*map(inputs.__getitem__, self._reads), *outputs], self._stream())

    def _copy_out(self, tensor: Tensor, dtype: str, address: int) -> None:
        if math.prod(tensor.shape):
            kernel = copy_out(tensor, dtype)
            self._gpu.launch(kernel, [self._execution.address(tensor), address])


class Choice:
    """The end of a step that chooses its next tokens. inputs: where tokens (0) and position (1)
    are. outputs: where the logits are; the text is added."""

    def __init__(self, moving: Moving, inputs: Mapping[int, Region], outputs: list[Region]) -> None:
        launch = likeliest(*moving)
        outputs.append(Region(8 * moving.texts * moving.longest))
        logits, text = outputs
        self._kept = Region(4 * launch.partial), Region(4 * launch.arrivals)
        self.kernel = launch.kernel
        places = (logits, inputs[0], inputs[1], text, *self._kept)
        self.addresses = [place.address for place in places]


def require_pointed(graph: PointedGraph, number: int) -> None:
    """Raise LookupError if the graph reads or writes one of this many pieces of memory where it was
    recorded, not where the caller has it."""
    missing = set(range(number)) - graph.pointed
    if missing:
        raise LookupError(f"no kernel of the graph has the addresses {sorted(missing)}")


def _no_weights(kind: str, target: str) -> np.ndarray:
    raise LookupError(f"{kind} {target}: the weights are another execution's")
