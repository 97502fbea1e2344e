"""Values from outside the graph: batches, weights, and the state that steps change."""

from __future__ import annotations

from collections.abc import Mapping

from golow.levels.direct.buffers import UNDECIDED
from golow.levels.direct.node import CurrentNode
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.memory import PlanMemory
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.analysis.liveness import state_outputs
from golow.lower.ir.graph import GraphInput
from golow.lower.plan.plan import Place
from golow.records.workload import KEPT

Key = tuple[str, str]  # kind and target


class Inputs:
    """tensors: the inputs of the graph that something reads, by kind and target. given: layouts
    that some of them have, whoever reads them first."""

    def __init__(
        self, current: CurrentNode, memory: PlanMemory, given: Mapping[Key, Descriptor]
    ) -> None:
        self._current, self._memory, self._given = current, memory, given
        self.tensors: dict[tuple[str, str], Tensor] = {}
        self._changed = frozenset(state_outputs(current.graph).values())

    def is_state(self, item: GraphInput) -> bool:
        """True if a step may change this input."""
        if self._current.trains:
            return item.kind in (*KEPT, "parameter", "buffer")
        return item.value.name in self._changed

    def bring_in(self, item: GraphInput, layout: Descriptor | None) -> Tensor:
        """Allocate memory for an input in this layout."""
        value = item.value
        place: Place = UNDECIDED
        if item.kind in ("input", "target"):
            place = "input"
        elif self.is_state(item) or item.kind == "learning_rate":
            place = "state"
        key = (item.kind, item.target)
        layout = self._given.get(key, layout)
        tensor = self._memory.new(value.name, value.shape, layout, value.dtype, place)
        self.tensors[key] = tensor
        return tensor
