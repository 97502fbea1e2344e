"""Values from outside the graph: batches, weights, and the state that training changes."""

from __future__ import annotations

from collections.abc import Mapping

from golow.levels.direct.buffers import UNDECIDED
from golow.levels.direct.node import CurrentNode
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.memory import PlanMemory
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import GraphInput, InputKind
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

    def is_state(self, kind: InputKind) -> bool:
        """True if a step may change an input of this kind."""
        return kind in KEPT or (self._current.trains and kind in ("parameter", "buffer"))

    def bring_in(self, item: GraphInput, layout: Descriptor | None) -> Tensor:
        """Allocate memory for an input in this layout."""
        value = item.value
        place: Place = UNDECIDED
        if item.kind in ("input", "target"):
            place = "input"
        elif self.is_state(item.kind) or item.kind == "learning_rate":
            place = "state"
        key = (item.kind, item.target)
        layout = self._given.get(key, layout)
        tensor = self._memory.new(value.name, value.shape, layout, value.dtype, place)
        self.tensors[key] = tensor
        return tensor
