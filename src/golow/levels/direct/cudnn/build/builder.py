"""Turns a graph into steps on the GPU: where each value is stored, in which layout and type, and
which kernel or engine computes it. ``operators/`` has what each operation does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.concatenation_memory import Concatenations
from golow.levels.direct.cudnn.build.counters import Counters
from golow.levels.direct.cudnn.build.inputs import Inputs
from golow.levels.direct.cudnn.build.load_once import Loading
from golow.levels.direct.cudnn.build.memory import PlanMemory
from golow.levels.direct.cudnn.build.outputs import Outputs
from golow.levels.direct.cudnn.build.step_list import StepList
from golow.levels.direct.cudnn.build.training_state import Held, TrainingState
from golow.levels.direct.cudnn.build.updating import Updating
from golow.levels.direct.cudnn.build.values import Values
from golow.levels.direct.cudnn.problems.precision import Types
from golow.levels.direct.cudnn.steps.built_plan import Built, Tensor
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.node import CurrentNode
from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import record_of
from golow.lower.plan.plan import make_plan

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine, Engines, Operation

LEVEL = "cudnn"
NOTHING: Mapping[str, str] = {}
NONE_HELD: Mapping[str, Held] = {}
ALIGNMENT = 256  # bytes; what cuBLASLt requires of a workspace


class Builder:
    """Builds the steps of one graph, node by node. An operator asks ``current`` about its node,
    takes its arguments from ``values``, adds ``steps``, and defines its results in ``values``."""

    def __init__(
        self,
        graph: Graph,
        engines: Engines,
        types: Types,
        batches: int,
        given: Mapping[str, str] = NOTHING,
        held: Mapping[str, Held] = NONE_HELD,
    ) -> None:
        self.engines, self.types = engines, types
        self.current = CurrentNode(graph, LEVEL)
        self.loading = Loading(self.current)
        self.memory = PlanMemory(self.current, self.loading)
        self.steps = StepList(self.current, self.memory, self.loading, batches)
        self.concatenations = Concatenations(self)
        self.training = TrainingState(self.current, types, self.memory.new, held)
        self.counters = Counters(graph)
        self.updating = Updating()
        self.inputs = Inputs(self, batches, given)
        self.values = Values(self)
        self.outputs = Outputs(self)

    def build(
        self, implemented: Mapping[str, Implementation], finish: Callable[[Builder], None]
    ) -> Built:
        """Build all steps; ``finish`` adds those at the end of a training step. Raises
        `Unsupported` if an operation has no engine or a size exceeds what its kernel takes."""
        for position, node in enumerate(self.current.graph.nodes):
            self.current.move_to(position)
            made = [value.name for value in node.outputs if value is not None]
            try:
                with self.loading.of(*made):
                    implemented[node.op].build(self, record_of(node))
            except ValueError as error:
                raise self.current.unsupported(f"{node.op}: {error}") from error
            self.values.end_node()
        self.current.end()
        outputs = self.outputs.place_all()
        finish(self)
        return self._built(outputs)

    def _built(self, outputs: dict[tuple[str, str], Tensor]) -> Built:
        """Decide where everything is."""
        memory, steps, training, loading = self.memory, self.steps, self.training, self.loading
        kept = [t.buffer for key, t in outputs.items() if key[0] in ("output", "loss")]
        read_by_numpy = [tensor.buffer for tensor in loading.made.values()]
        memory.buffers.decide_places(steps.steps, [*kept, *read_by_numpy])
        return Built(
            graph=self.current.graph,
            plan=make_plan(
                self.current.graph.name,
                steps.steps,
                memory.buffers.all,
                kept,
                ALIGNMENT,
                steps.late,
                training.beside,
                self.updating.within(self),
            ),
            calls=tuple(steps.calls),
            fills=tuple(memory.fills),
            copies=tuple(training.copies),
            inputs=self.inputs.tensors | training.inputs(),
            outputs=outputs,
            cells=memory.cells,
            constants=loading.constants,
            made=loading.made,
            values=self.values.in_memory(outputs),
        )

    def engine_for(self, operation: Operation) -> Engine:
        """Return the engine. Raises `Unsupported` if no library has one."""
        engine = self.engines.choose(operation)
        if engine is None:
            op = self.current.node.op
            raise self.current.unsupported(f"no library has an engine for {op} of these shapes")
        return engine
