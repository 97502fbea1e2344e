"""Training steps of one network on a GPU in the caller's own process: plans over one state, each a
CUDA graph on the caller's stream.

Nothing here imports a framework: inputs, losses and streams are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from golow.levels.direct.bundle_arrays import Batch, Read
from golow.levels.direct.cudnn.bindings.pointed_graph import PointedGraph, Turns
from golow.levels.direct.cudnn.build.training_state import is_of
from golow.levels.direct.cudnn.engines.engines import Engines
from golow.levels.direct.cudnn.planning import build_plan
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.problems.precision import TYPES
from golow.levels.direct.cudnn.run.called_plan import building, require_pointed
from golow.levels.direct.cudnn.run.device_memory import DeviceMemory
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.run.ranks import Ranks
from golow.levels.direct.cudnn.run.training_state import TrainingState
from golow.levels.direct.cudnn.shared_kernels.copies import strided_copy
from golow.levels.direct.cudnn.shared_kernels.dropout import CONTROL
from golow.levels.direct.cudnn.shared_kernels.loss_scale import SCALER
from golow.levels.direct.cudnn.steps.built_plan import LOSS_SCALE, Built
from golow.levels.direct.kernel_views import View
from golow.levels.direct.plan_program import SEEN, Key, clipped
from golow.levels.direct.ranks.exchanges import Exchanges
from golow.levels.nvidia.memory import Region
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Place, Plan
from golow.records.workload import Precision

LOSS = ("loss", "loss")
LOSS_BYTES = 4
Stream = Callable[[], int]


class Scale(NamedTuple):
    """Scale of the loss, in float16. value: at first. good: steps since it changed; -1 if it
    stays."""

    value: float
    good: int = 0


class TrainingPlans:
    """The plans of one network, such as those of several batch sizes. One of them runs at a time;
    launches in other streams wait for one another.

    state: what all of them read and change. engines: those of the GPU. seed: of the random layers,
    in all plans together. stream: gives the caller's. ranks: those that train together; they build
    their first plans together, and may build others alone.
    """

    def __init__(
        self,
        engines: Engines,
        precision: Precision,
        seed: int,
        scale: Scale,
        stream: Stream,
        ranks: Ranks | None = None,
    ) -> None:
        engines.gpu.make_current()
        self.state = TrainingState()
        self.gpu, self._engines, self._precision = engines.gpu, engines, precision
        self._seed, self._scale, self._stream = seed, scale, stream
        self._turns, self._arena = Turns(), Region(0)
        self._ranks, self._exchanges = ranks, Exchanges(None if ranks is None else ranks.meeting)
        self._made: list[TrainingPlan] = []

    @property
    def iteration_bytes(self) -> int:
        """Bytes that an iteration of the largest plan needs besides the state."""
        return self._arena.size

    def add(
        self, graph: Graph, read: Read, example: Batch, given: Mapping[str, str]
    ) -> TrainingPlan:
        """Build the plan of a lowered training graph; its state is not written yet.

        read(kind, target): a constant, or a weight that no step changes. example: of a batch, to
        run once. given: types of inputs, by position, where these are not the graph's. Raises
        `Unsupported` for operations without an engine, `MemoryError` if the GPU has no room.
        """
        with building:
            self.gpu.make_current()
            types = TYPES[self._precision]
            built = build_plan(graph, self._engines, types, 1, given, self.state.held)
            self._exchanges.require_fitting(built)
            if built.plan.sizes["arena"] > self._arena.size:
                self._arena = Region(built.plan.sizes["arena"])
            sources = {item.value.name: item for item in graph.inputs}
            lagging, is_first = self.state.lagging(built), self.state.is_empty
            execution = Execution(
                built, self.gpu, sources, [example], read,
                arena=self._arena, state=self.state.shared(built), ranks=self._ranks,
            )  # fmt: skip
            new = self.state.hold(execution)
            spare = None if is_first else DeviceMemory(built.plan, arena=self._arena)
            plan = TrainingPlan(
                execution, lagging, spare, self._turns, self._stream, together=is_first
            )
            self._made.append(plan)
            for cell in new:
                if cell.kind == "dropout":
                    self._write_dropout(active=True, only=cell.probability)
                else:
                    self.set_scale(self._scale)
            return plan

    def close(self) -> None:
        """End the exchange with the other ranks: first the graphs that have a part of it."""
        for plan in self._made:
            plan.close()
        if self._ranks is not None:
            self._ranks.close()

    def set_dropout(self, active: bool) -> None:
        """Switch random layers on or off, and restart their random numbers."""
        self._write_dropout(active)

    def _write_dropout(self, active: bool, only: float | None = None) -> None:
        for cell in self.state.cells("dropout"):
            if only is None or cell.probability == only:
                probability = cell.probability if active else 0.0
                self.state.write_cell(cell, np.array((self._seed, 0, probability), CONTROL))

    def set_rate(self, group: str, rate: float) -> None:
        """Enqueue the learning rate of a group of parameters, after the steps so far."""
        self.gpu.make_current()
        stream = self._stream()
        with self._turns.taken(stream):
            self.state.set_rate(group, rate, stream)

    @property
    def scale(self) -> Scale | None:
        """The loss scale after all steps so far; None if the loss is not scaled."""
        if LOSS_SCALE not in self.state.cells("loss_scale"):
            return None
        cell = self.state.read_cell(LOSS_SCALE, SCALER)
        return Scale(float(cell["scale"]), int(cell["good_steps"]))

    def set_scale(self, scale: Scale) -> None:
        """Go on with this loss scale."""
        if LOSS_SCALE in self.state.cells("loss_scale"):
            self.state.write_cell(LOSS_SCALE, np.array((scale.value, scale.good, 0), SCALER))


class TrainingPlan:
    """A plan of a step that is ready to run. lagging: copies of parameters that it must refresh.
    spare: memory in which it may run once, if its own has content. together: whether other ranks
    build it now, too; only then that run exchanges gradients, which prepares NCCL for all plans."""

    def __init__(
        self,
        execution: Execution,
        lagging: Sequence[Place],
        spare: DeviceMemory | None,
        turns: Turns,
        stream: Stream,
        together: bool = True,
    ) -> None:
        self._execution, self._gpu, self._stream = execution, execution.gpu, stream
        self.plan: Plan = execution.plan
        built, landing = execution.built, Region(LOSS_BYTES)
        self._inputs, self._targets = (
            [int(target) for of, target in built.inputs if of == kind]
            for kind in ("input", "target")
        )
        self._lagging = lagging
        self._sums = (
            [place for place in self.plan.sizes if is_of("gradient_sum", place)]
            if any(kind == "gradient" for kind, _ in built.outputs)
            else []
        )
        keys = [("input", str(k)) for k in self._inputs]
        keys += [("target", str(k)) for k in self._targets]
        self._buffers = [built.inputs[key].buffer for key in keys]
        places = [execution.memory.input(buffer) for buffer in self._buffers]

        def enqueue(exchanges: bool = True) -> None:
            self._enqueue(landing.address, exchanges)

        own = execution.memory
        if spare is not None:
            execution.memory = spare
        enqueue(together)  # libraries load their kernels on first use, not inside a graph
        self._gpu.synchronize()
        execution.memory = own
        self._graph = PointedGraph(self._gpu, enqueue, [*places, landing], turns)
        require_pointed(self._graph, len(places) + 1)
        execution.memory.forget_inputs()

    def __call__(self, inputs: Sequence[int], targets: Sequence[int], loss: int) -> None:
        """Enqueue the step on a batch at these addresses, on the caller's stream. Its loss, a
        float32, is written to that address."""
        self._graph.launch([*self._given(inputs, targets), loss], self._stream())

    def observed(self, inputs: Sequence[int], targets: Sequence[int]) -> dict[Key, np.ndarray]:
        """Run the same step by step; return loss, outputs and gradients, which may be scaled. The
        batch must be there, and the GPU idle."""
        execution, built = self._execution, self._execution.built
        wanted = {key: tensor for key, tensor in built.outputs.items() if key[0] in SEEN}
        with building, execution.memory.with_inputs():
            self._gpu.make_current()
            for buffer, address in zip(self._buffers, self._given(inputs, targets), strict=True):
                size = self.plan.buffers[buffer].bytes
                place = execution.memory.input(buffer).address
                self._gpu.copy_columns(place, size, address, size, size, 1)
            if self._lagging:
                execution.renew_copies(self._lagging)
            found = execution.run_observed(0, wanted)
            self._forget_sums()
            self._gpu.synchronize()
        return clipped(found)

    def _given(self, inputs: Sequence[int], targets: Sequence[int]) -> list[int]:
        return [*(inputs[k] for k in self._inputs), *(targets[k] for k in self._targets)]

    @property
    def built(self) -> Built:
        """The plan with what executes it."""
        return self._execution.built

    def close(self) -> None:
        """Destroy the graph. The plan cannot run any more."""
        self._graph.close()

    def load(self, read: Read) -> None:
        """Take other weights that no step changes. No step may run meanwhile."""
        with building:
            self._execution.fill(read)

    def _enqueue(self, landing: int, exchanges: bool) -> None:
        execution = self._execution
        if self._lagging:
            execution.renew_copies(self._lagging)
        execution.enqueue(exchanges)
        loss = execution.built.outputs[LOSS]
        here = View(loss.dtype, loss.layout.strides(loss.shape))
        there = View("float32", Layout("float32").strides(loss.shape))
        kernel = strided_copy(here, there, loss.shape)
        self._gpu.launch(kernel, [execution.address(loss), landing])
        self._forget_sums()

    def _forget_sums(self) -> None:
        for place in self._sums:
            region = self._execution.memory.place(place)
            if region is not None:
                self._gpu.fill(region.address, self.plan.sizes[place])
