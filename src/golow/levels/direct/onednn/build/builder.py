"""Turns a graph into steps that oneDNN executes: where each value is stored, in which layout, and
which reorders are needed. ``operators/`` has what each operation does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.node import CurrentNode
from golow.levels.direct.onednn.bindings.constants import FORWARD_INFERENCE, FORWARD_TRAINING
from golow.levels.direct.onednn.bindings.library import Descriptor, Engine, OneDnnError
from golow.levels.direct.onednn.build.inputs import Inputs, Key
from golow.levels.direct.onednn.build.memory import PlanMemory
from golow.levels.direct.onednn.build.outputs import Outputs
from golow.levels.direct.onednn.build.step_list import StepList
from golow.levels.direct.onednn.build.values import Values
from golow.levels.direct.onednn.steps.built_plan import Built, Switches
from golow.levels.direct.onednn.steps.value_views import Views
from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import read
from golow.lower.plan.plan import make_plan

LEVEL = "onednn"

Chooser = Callable[[int], int]


class Builder:
    """Builds the steps of one graph, node by node. An operator asks ``current`` about its node,
    takes its arguments from ``values`` or ``views``, adds ``steps``, and defines its results there.

    layout_of: the format tag (ANY, CHANNELS_LAST, a block's) for the convolution at a position of
    the graph; for a linear layer it stands for a way to compute it. generates: whether kernels can
    be compiled here. state: layouts of what training changes, where they are given.
    """

    def __init__(
        self,
        graph: Graph,
        engine: Engine,
        layout_of: Chooser,
        switches: Switches,
        generates: bool = False,
        state: Mapping[Key, Descriptor] = MappingProxyType({}),
    ) -> None:
        self.engine, self.layout_of = engine, layout_of
        self.switches, self.generates = switches, generates
        self.current = CurrentNode(graph, LEVEL)
        self.forward_kind = FORWARD_TRAINING if self.current.trains else FORWARD_INFERENCE
        self.memory = PlanMemory(self.current)
        self.steps = StepList(self.current, self.memory)
        self.inputs = Inputs(self.current, self.memory, state)
        self.values = Values(self)
        self.views = Views(self)
        self.outputs = Outputs(self)

    def build(self, implemented: Mapping[str, Implementation]) -> Built:
        """Build all steps of a graph whose operators are all implemented. Raises `Unsupported` for
        shapes that the library refuses."""
        for position, node in enumerate(self.current.graph.nodes):
            self.current.move_to(position)
            implementation = implemented[node.op]
            try:
                implementation.build(self, read(node, implementation.operator))
            except OneDnnError as error:
                raise self.current.unsupported(f"{node.op}: {error}") from error
        self.outputs.keep_state()
        self.outputs.copy_passed_inputs()
        return self._built(self.outputs.returned_buffers())

    def _built(self, kept: list[int]) -> Built:
        """Decide where everything is. kept: the buffers that are read after the last step."""
        memory, steps = self.memory, self.steps
        memory.buffers.decide_places(steps.steps, kept)
        outputs = self.outputs.place_all()
        return Built(
            graph=self.current.graph,
            plan=make_plan(self.current.graph.name, steps.steps, memory.buffers.all, kept),
            calls=tuple(steps.calls),
            nodes=tuple(steps.nodes),
            inputs=self.inputs.tensors,
            outputs=outputs,
            values=self.values.in_memory(),
            constants=memory.constants,
        )
