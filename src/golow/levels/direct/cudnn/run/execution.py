"""A built plan on the GPU: its memory regions, its steps bound to addresses, and the CUDA graph
that runs them all."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from golow.levels.direct.bundle_arrays import STATE, Batch, Read
from golow.levels.direct.cudnn.bindings.device import Gpu, Graph
from golow.levels.direct.cudnn.build.branches import joins, runs_beside
from golow.levels.direct.cudnn.build.training_state import KEPT, is_of
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES, Layout, packed, unpacked
from golow.levels.direct.cudnn.run.device_array import DeviceArray
from golow.levels.direct.cudnn.run.device_memory import NO_STATE, DeviceMemory, SharedState
from golow.levels.direct.cudnn.run.ranks import Piece, Ranks
from golow.levels.direct.cudnn.shared_kernels.cast import cast
from golow.levels.direct.cudnn.shared_kernels.copies import strided_copy
from golow.levels.direct.cudnn.shared_kernels.delay import delay
from golow.levels.direct.cudnn.steps.built_plan import (
    POSITION,
    AverageCall,
    Built,
    Call,
    Cell,
    EngineCall,
    FlatCall,
    KernelCall,
    Tensor,
)
from golow.levels.direct.kernel_views import View
from golow.levels.direct.weight_arithmetic import computed
from golow.levels.nvidia.memory import Region
from golow.lower.ir.graph import GraphInput
from golow.lower.plan.plan import Place, Step

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine

Key = tuple[str, str]
# Upper limit of the host's time to enqueue a step and an event.
ENQUEUE_NS = 60_000
ITERATIONS = 12  # of which the shortest counts


class Execution:
    """A plan that is ready to run."""

    def __init__(
        self,
        built: Built,
        gpu: Gpu,
        sources: Mapping[str, GraphInput],
        batches: Sequence[Batch],
        read: Read,
        *,
        arena: Region | None = None,
        weights: Execution | None = None,
        state: SharedState = NO_STATE,
        ranks: Ranks | None = None,
    ) -> None:
        """sources: the graph's inputs by the names of their values. read(kind, target) returns a
        parameter, buffer or constant as an array, which may be on the device. arena, weights,
        state: as of `DeviceMemory`; an execution with another one's weights reads none, and that
        one must live as long. ranks: averages over those that train together."""
        self.built, self.gpu, self.plan = built, gpu, built.plan
        self.memory: DeviceMemory = DeviceMemory(
            self.plan,
            arena=arena,
            weights=None if weights is None else weights.memory,
            state=state,
        )
        self._sources, self._ranks = sources, ranks
        steps = zip(built.calls, self.plan.steps, strict=True)
        # The calls of an iteration by their positions in the plan.
        self._calls = {p: call for p, (call, step) in enumerate(steps) if not step.once}
        # Engines in place of others, with a separate workspace.
        self._instead: dict[Engine, tuple[Engine, Region]] = {}
        gpu.compile(call.kernel for call in built.calls if isinstance(call, KernelCall))
        if weights is None:
            self.fill(read)
        if batches:
            self.take_batches(batches)
        self._joins = joins(built.calls, self.plan.steps)
        self._graph: Graph | None = None

    # ------------------------------------------------------------ running

    def run(self, batch: int) -> None:
        """Enqueue one iteration on the batch with that index."""
        if (cell := self.built.cells.get(POSITION)) is not None:
            self.gpu.write_word(self.address(cell), batch)
        if self._graph is None:
            self.enqueue()  # libraries load their kernels on first use, not inside a graph
            self._graph = self.gpu.capture(self.enqueue)
        else:
            self.gpu.replay(self._graph)

    def runs(self, engine: Engine) -> bool:
        """True if an iteration runs this engine."""
        calls = (call for call in self._calls.values() if isinstance(call, EngineCall))
        return any(call.engine is engine for call in calls)

    def exchange(self, engine: Engine, other: Engine) -> None:
        """Run another engine in place of this one, with a separate workspace, until the plan is
        built again."""
        self.close()
        if other is engine:
            self._instead.pop(engine, None)
        else:
            self._instead[engine] = (other, Region(other.workspace))

    def iteration_ns(self) -> float:
        """Return the shortest time of an iteration on the batch that ran last, in ns."""
        return self.gpu.time(self.enqueue, ITERATIONS)

    def run_timed(self, batch: int) -> list[tuple[Step, int]]:
        """Run one iteration step by step; return each step with its nanoseconds by the GPU's clock.
        The GPU is kept busy until all steps are enqueued, so that no step waits for the host."""
        events = [self.gpu.event() for _ in range(len(self._calls) + 1)]
        if (cell := self.built.cells.get(POSITION)) is not None:
            self.gpu.write_word(self.address(cell), batch)
        self.gpu.launch(delay(ENQUEUE_NS * len(events)), [])
        self.gpu.record(events[0])
        for call, event in zip(self._calls.values(), events[1:], strict=True):
            self._step(call)
            self.gpu.record(event)
        self.gpu.synchronize()
        spent = [self.gpu.elapsed_ns(first, second) for first, second in pairwise(events)]
        return [(self.plan.steps[p], ns) for p, ns in zip(self._calls, spent, strict=True)]

    def run_marked(self, batch: int, marked: Callable[[int], AbstractContextManager[None]]) -> None:
        """Run one iteration step by step on the main stream, each in the context of its position.
        The next `run` captures the graph again, so that a profiler that came later sees it."""
        self.close()
        if (cell := self.built.cells.get(POSITION)) is not None:
            self.gpu.write_word(self.address(cell), batch)
        for position, call in self._calls.items():
            with marked(position):
                self._step(call)

    def run_watched(self, batch: int, watch: Callable[[int], None]) -> None:
        """Run one iteration step by step on the main stream; call ``watch`` with the position of
        each step after it was enqueued."""
        if (cell := self.built.cells.get(POSITION)) is not None:
            self.gpu.write_word(self.address(cell), batch)
        for position, call in self._calls.items():
            self._step(call)
            watch(position)

    def run_observed(self, batch: int, wanted: Mapping[Key, Tensor]) -> dict[Key, np.ndarray]:
        """Run one iteration step by step; return these tensors, each read before the update that
        ends its life, or at the end."""
        if (cell := self.built.cells.get(POSITION)) is not None:
            self.gpu.write_word(self.address(cell), batch)
        found: dict[Key, np.ndarray] = {}
        for position, call in self._calls.items():
            if isinstance(call, FlatCall):
                last = {operand.buffer for operand in self.plan.steps[position].reads}
                found |= {k: self.read(t) for k, t in wanted.items() if t.buffer in last}
            self._step(call)
        return found | {k: self.read(t) for k, t in wanted.items() if k not in found}

    def enqueue(self, exchanges: bool = True) -> None:
        """Enqueue all steps; the main stream waits for side steps and for means over ranks where
        `joins` states. exchanges: whether other ranks do the same now; if not, without means."""
        beside: dict[int, Any] = {}
        for position, call in self._calls.items():
            if isinstance(call, AverageCall):
                if not exchanges:
                    continue
                waited = [beside[started] for started in self._joins[position]]
                beside[position] = self._average_beside(call, waited)
                continue
            for started in self._joins[position]:
                if started in beside:
                    self.gpu.join(beside.pop(started))
            side = runs_beside(call)
            if side:
                self.gpu.fork()
            self._step(call, side)
            if side:
                beside[position] = self.gpu.beside()
        for event in beside.values():
            self.gpu.join(event)

    def _step(self, call: Call, side: bool = False) -> None:
        if isinstance(call, FlatCall):
            self._flat(call)
            return
        if isinstance(call, AverageCall):
            self._average(call, self.gpu.stream)
            return
        addresses = [self.address(tensor) if tensor else 0 for tensor in call.arguments]
        if isinstance(call, EngineCall) and call.engine in self._instead:
            engine, region = self._instead[call.engine]
            engine.run(addresses, region.address, side)
        elif isinstance(call, EngineCall):
            workspace = self.address(call.workspace) if call.workspace else 0
            call.engine.run(addresses, workspace, side)
        else:
            self.gpu.launch(call.kernel, addresses)

    def _average_beside(self, call: AverageCall, waited: Sequence[Any]) -> Any:
        """Enqueue it on the ranks' own stream, after these events and all work now on the main
        stream; return an event after it."""
        stream = self.ranks.stream
        self.gpu.fork(stream)
        for event in waited:
            self.gpu.join(event, stream)
        self._average(call, stream)
        return self.gpu.beside(stream)

    def _average(self, call: AverageCall, stream: int) -> None:
        pieces = [
            Piece(self.memory.address_of(place), self._elements(place, dtype), dtype)
            for place, dtype in call.places
        ]
        self.ranks.mean(pieces, stream)

    @property
    def ranks(self) -> Ranks:
        """Ranks that train together. Raises LookupError if there is none."""
        if self._ranks is None:
            raise LookupError("the plan averages over ranks, and there are none")
        return self._ranks

    def _elements(self, place: Place, dtype: str) -> int:
        size = self.plan.pieces.get(place, (0, 0))[1] or self.plan.sizes[place]
        return size // ITEM_BYTES[dtype]

    def _flat(self, call: FlatCall) -> None:
        kernel = call.make(self._elements(call.first, call.dtype))
        addresses = [
            self.memory.address_of(argument)
            if isinstance(argument, str)
            else (self.address(argument) if argument else 0)
            for argument in (call.first, *call.arguments)
        ]
        self.gpu.launch(kernel, addresses)

    def close(self) -> None:
        """Free the captured graph. The ranks' communicator can be destroyed afterwards."""
        if self._graph is not None:
            self.gpu.synchronize()
            self.gpu.destroy(self._graph)
            self._graph = None

    # ------------------------------------------------------------ tensors in and out

    def address(self, tensor: Tensor) -> int:
        """Return the tensor's device address."""
        return self.memory.address(tensor)

    def place(self, tensor: Tensor, batch: int) -> int:
        """Return the device address of the batch with that index, for an input of the model."""
        return self.address(tensor) + batch * (tensor.layout.bytes(tensor.shape) // tensor.shape[0])

    def read(self, tensor: Tensor) -> np.ndarray:
        """Return the tensor's content in PyTorch's order; 16-bit floats as float32."""
        return np.require(self.view(tensor), requirements="C")

    def view(self, tensor: Tensor) -> np.ndarray:
        """Return the same in the order in which it is in memory."""
        dtype = NUMPY_TYPES[tensor.dtype]
        extent = tensor.layout.extent(tensor.shape)
        flat = self.gpu.download(self.address(tensor), (extent,), dtype)
        return unpacked(flat, tensor.shape, tensor.layout)

    def first(self, tensor: Tensor) -> float:
        """Return the tensor's first element, without reading the others."""
        found = self.gpu.download(self.address(tensor), (1,), NUMPY_TYPES[tensor.dtype])
        return float(unpacked(found, (1,), Layout(tensor.dtype))[0])

    def write(self, tensor: Tensor, array: np.ndarray | DeviceArray) -> None:
        """Fill a tensor with an array in PyTorch's order."""
        if isinstance(array, DeviceArray):
            if tensor.layout.elements(tensor.shape) != math.prod(tensor.shape):  # it has padding
                self.gpu.fill(self.address(tensor), tensor.layout.bytes(tensor.shape))
            self.gpu.launch(array.copy_to(tensor), [array.address, self.address(tensor)])
            if array.passing:
                self.gpu.synchronize()
            return
        self.gpu.upload(self.address(tensor), packed(array.reshape(tensor.shape), tensor.layout))

    def write_cell(self, cell: Cell, content: np.ndarray) -> None:
        """Fill a cell, if the plan has it."""
        if (tensor := self.built.cells.get(cell)) is not None:
            self.gpu.upload(self.address(tensor), content.reshape(1).view(np.uint8))

    def read_cell(self, cell: Cell, dtype: np.dtype) -> np.ndarray:
        """Return the content of a cell, which the plan must have."""
        found = self.gpu.download(self.address(self.built.cells[cell]), (1,), dtype)
        return found.reshape(())

    def write_float(self, tensor: Tensor, value: float) -> None:
        """Enqueue writing a single float32."""
        bits = int(np.float32(value).view(np.uint32))
        self.gpu.write_word(self.address(tensor), bits)

    def forget(self) -> None:
        """Set all that the optimizer keeps to zero."""
        if (steps := self.built.inputs.get(("steps", "steps"))) is not None:
            self.write_float(steps, 0.0)
        for place, region in self.memory.places().items():
            if any(is_of(role, place) for role in KEPT):
                self.gpu.fill(region.address, region.size)

    def renew_copies(self, places: Collection[Place] | None = None) -> None:
        """Refresh the half-precision copies of the parameters from their originals: those in these
        places, or all."""
        for tensor, copy in self.built.copies:
            if places is not None and self.plan.buffers[copy.buffer].place not in places:
                continue
            kernel = cast(tensor.dtype, copy.dtype, tensor.elements)
            self.gpu.launch(kernel, [self.address(tensor), self.address(copy)])

    def take_state(self, other: Execution) -> None:
        """Enqueue copying all that training changes, and shared cells, from another plan of the
        same network, whose layouts may differ."""
        for key, tensor in self.built.inputs.items():
            if key[0] in STATE:
                self._copy(other, other.built.inputs[key], tensor)
        for cell, tensor in self.built.cells.items():
            if cell != POSITION:
                self._copy(other, other.built.cells[cell], tensor)
        self.renew_copies()

    def _copy(self, other: Execution, source: Tensor, target: Tensor) -> None:
        here, there = (tensor.layout.strides(tensor.shape) for tensor in (source, target))
        kernel = strided_copy(View(source.dtype, here), View(target.dtype, there), target.shape)
        self.gpu.launch(kernel, [other.address(source), self.address(target)])

    @property
    def working_bytes(self) -> int:
        """Bytes that an iteration uses beyond parameters, buffers and what the optimizer keeps."""
        return sum(
            size
            for place, size in self.plan.sizes.items()
            if place == "arena" or is_of("gradient", place)
        )

    # ------------------------------------------------------------ loading

    def fill(self, read: Read) -> None:
        """Write what iterations only read: weights, and values computed from weights alone."""

        def on_host(name: str) -> np.ndarray:
            found = value(name)
            return found.host() if isinstance(found, DeviceArray) else found

        def value(name: str) -> np.ndarray | DeviceArray:
            if (source := self._sources.get(name)) is not None:
                return read(source.kind, source.target)
            if (made := self.built.made.get(name)) is not None:
                write([made.buffer])  # of a weight that no step has read
                return self.read(made)
            return computed(self.built.constants[name], on_host)

        def write(buffers: Iterable[int]) -> None:
            for wanted, tensor in filter(None, (waiting.pop(index, None) for index in buffers)):
                number = isinstance(wanted, float)
                self.write(tensor, np.array(wanted, np.float32) if number else value(str(wanted)))

        # Each weight is read when it is first needed: memory of loading alone is shared over time.
        waiting = {fill.tensor.buffer: fill for fill in self.built.fills}
        with self.memory.loading():
            for call, step in zip(self.built.calls, self.plan.steps, strict=True):
                if step.once:
                    write(operand.buffer for operand in step.reads)
                    self._step(call)
            write(tuple(waiting))
            self.gpu.synchronize()

    def take_batches(self, batches: Sequence[Batch]) -> None:
        """Upload these batches, as many as the plan was built for, as inputs of iterations."""
        for (kind, target), tensor in self.built.inputs.items():
            if kind in ("input", "target"):
                arrays = [batch[(kind, target)] for batch in batches]
                self.gpu.upload(self.memory.input(tensor.buffer).address, np.stack(arrays))
