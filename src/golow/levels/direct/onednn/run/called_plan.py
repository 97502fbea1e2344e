"""A plan of oneDNN in the caller's own process, called on memory that the caller has.

Nothing here imports a framework: inputs and outputs are addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
import numpy as np

from golow.levels.direct.bundle_arrays import Batch, Read
from golow.levels.direct.onednn.bindings.constants import ANY
from golow.levels.direct.onednn.bindings.library import Descriptor, Engine
from golow.levels.direct.onednn.build.inputs import Key
from golow.levels.direct.onednn.operators.linear import AS_STORED
from golow.levels.direct.onednn.planning import arranged, build_plan
from golow.levels.direct.onednn.run import tuning
from golow.levels.direct.onednn.run.borrowed_weights import Lent, borrowed, prepared, weights_of
from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.run.iterations import Iterations
from golow.levels.direct.onednn.run.kernel_compilation import Workshop
from golow.levels.direct.onednn.run.mutable_state import MutableState
from golow.levels.direct.onednn.run.shared_weights import Region, SharedWeights
from golow.levels.direct.onednn.steps.built_plan import ArrayCall, Built, Switches, Tensor
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Plan
from golow.storage.cache import write_sealed


class CalledPlan:
    """The plan of a lowered graph in inference, with its weights.

    graph: after the level's passes. read(kind, target): a parameter, buffer or constant, as graphs
    take it. workshop: what compiles kernels; None lets NumPy compute instead. layouts: as chosen by
    `chosen_layouts`; by default those that the library prefers. as_stored: whether products read
    their weights in PyTorch's order instead. state: where buffers are that the plan changes,
    together with other plans of the network. Raises `Unsupported` for shapes that the library
    refuses.
    """

    def __init__(
        self,
        graph: Graph,
        read: Read,
        workshop: Workshop | None,
        *,
        layouts: tuning.Layouts | None = None,
        as_stored: bool = False,
        state: MutableState | None = None,
    ) -> None:
        self.layouts = layouts or tuning.Layouts(positions={})
        self._engine, self._workshop = Engine(), workshop
        layout_of = _as_stored(graph, workshop) if as_stored else self.layouts.tag
        held = {} if state is None else state.layouts
        self._built = _build(graph, self._engine, layout_of, workshop, held)
        places = {} if state is None else state.places(self._built)
        self._weights = Execution(self._built, self._engine, read, workshop, elsewhere=places)
        if state is not None:
            state.hold(self._weights)

    @property
    def plan(self) -> Plan:
        """Its steps and memory."""
        return self._built.plan

    @property
    def built(self) -> Built:
        """The plan with what executes it."""
        return self._built

    def contents(self, read: Read, positions: Collection[int]) -> dict[int, list[np.ndarray]]:
        """Return what the steps of loading at these positions write with these weights: functions
        of arrays, each with copies of the arrays that it has."""
        found: dict[int, list[np.ndarray]] = {}
        execution = Execution(self._built, self._engine, read, self._workshop)

        def watch(position: int) -> None:
            call = self._built.calls[position]
            if position in positions and isinstance(call, ArrayCall):
                found[position] = [execution.read(tensor) for tensor in call.arguments]

        execution.load(read, watch)
        return found

    def prepared(self) -> str | None:
        """The first weight that iterations do not read as the state dict has it, with the reason;
        None if they read all of them so."""
        found = next(prepared(self._built), None)
        return None if found is None else f"{found[0]} ({found[1]})"

    def borrow(self, lent: Callable[[str], Lent]) -> None:
        """Read weights where the caller has them, by their names; `prepared` must have found none.
        To be followed by `share`, for all that is not a weight."""
        places = {
            tensor.buffer: borrowed(lent(name), tensor)
            for (_, name), tensor in weights_of(self._built).items()
        }
        self._weights.borrow(places)

    def share(self, memory: SharedWeights) -> None:
        """Keep the weights in a memory that other plans of the same network share; before the first
        `running`."""
        self._weights.share(memory)

    def load(self, read: Read) -> None:
        """Take other weights, in the memory of the present ones. No call may run meanwhile."""
        self._weights.load(read)

    def running(self, arena: Region, threads: int) -> Iterations:
        """The plan over an arena, which must be as large as `plan` states, and these weights; the
        others of an iteration are outputs. threads: of each iteration."""
        outputs = outputs_of(self._built)
        given = {tensor.buffer for tensor in outputs if is_written_in_place(self._built, tensor)}
        execution = Execution(
            self._built,
            self._engine,
            _no_weights,
            self._workshop,
            arena=arena,
            weights=self._weights,
            given=given,
        )
        written = [tensor if tensor.buffer in given else None for tensor in outputs]
        copies = [
            (k, execution.copying(tensor))
            for k, tensor in enumerate(outputs)
            if tensor.buffer not in given
        ]
        return Iterations(execution, inputs_of(self._built), written, threads, copies)

    def kernels(self) -> dict[str, tuple[str, Path]]:
        """Return the compiled libraries that the plan loads, by the digests of their sources: each
        with its source. Empty without a compiler."""
        return {} if self._workshop is None else self._workshop.compiled(self._built.codes)


def chosen_layouts(
    graph: Graph,
    read: Read,
    folder: Path,
    workshop: Workshop | None,
    *,
    tune: bool,
    example: Batch,
) -> tuning.Layouts | None:
    """Return the layouts that were chosen in the level's cache folder for this graph before. tune:
    whether to choose them if there are none, by measuring with the example for some seconds."""
    layouts = tuning.read(folder / tuning.LAYOUTS_FILE, [])
    if not tune or (layouts is not None and layouts.clean):
        return layouts
    engine = Engine()

    def loaded(tried: tuning.Layouts) -> Execution:
        execution = Execution(_build(graph, engine, tried.tag, workshop), engine, read, workshop)
        execution.pointing(example)()
        return execution

    layouts = tuning.choose(arranged(graph, workshop is not None), loaded)
    write_sealed(folder / tuning.LAYOUTS_FILE, msgspec.json.encode(layouts))
    return layouts


def _build(
    graph: Graph,
    engine: Engine,
    layout_of: Callable[[int], int],
    workshop: Workshop | None,
    state: Mapping[Key, Descriptor] = MappingProxyType({}),
) -> Built:
    return build_plan(graph, engine, layout_of, Switches(0), workshop is not None, state)


def _as_stored(graph: Graph, workshop: Workshop | None) -> Callable[[int], int]:
    layers = tuning.linear_layers(arranged(graph, workshop is not None))
    return lambda position: AS_STORED if position in layers else ANY


def is_written_in_place(built: Built, tensor: Tensor) -> bool:
    """True if the steps can write an output where the caller wants it: it fills a separate buffer
    in PyTorch's order, which no step of NumPy's and no other output has."""
    if tensor.descriptor is not None and not tensor.layout.is_plain:
        return False
    buffer = built.plan.buffers[tensor.buffer]
    alone = sum(other.buffer == tensor.buffer for other in outputs_of(built)) == 1
    fills = tensor.offset == 0 and tensor.bytes == buffer.bytes
    by_numpy = any(
        isinstance(call, ArrayCall) and any(t.buffer == tensor.buffer for t in call.arguments)
        for call in built.calls
    )
    return buffer.place == "arena" and alone and fills and not by_numpy


def outputs_of(built: Built) -> list[Tensor]:
    """Return what the plan returns, in order."""
    made = {
        int(target): held[0] for (kind, target), held in built.outputs.items() if kind == "output"
    }
    return [made[position] for position in sorted(made)]


def inputs_of(built: Built) -> list[Tensor | None]:
    """Return the inputs up to the last one that is read, in order; None for one that is not."""
    read = {
        int(target): tensor for (kind, target), tensor in built.inputs.items() if kind == "input"
    }
    return [read.get(position) for position in range(max(read, default=-1) + 1)]


def _no_weights(kind: str, target: str) -> np.ndarray:
    raise LookupError(f"{kind} {target}: the weights are another execution's")
