"""The ends of the graph: what a plan returns, and what it keeps for the next step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import is_rows_with_gaps
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.lower.analysis.liveness import state_outputs
from golow.lower.ir.graph import GraphOutput, Ref

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Outputs:
    """The outputs of a builder's graph, by kind and target."""

    def __init__(self, build: Builder) -> None:
        self._build, self._graph = build, build.current.graph
        self._state_of = state_outputs(self._graph)
        self._placed: dict[tuple[str, str], Tensor] = {}

    def place_gradients(self, targets: Collection[str]) -> None:
        """Put the gradients of these parameters where their update reads them."""
        outputs = self._graph.outputs
        self._put([i for i in outputs if i.kind == "gradient" and i.target in targets])

    def _put(self, gradients: Sequence[GraphOutput]) -> None:
        """Put gradients in their places; those that are elsewhere are copied together."""
        values, training = self._build.values, self._build.training
        elsewhere: list[tuple[Tensor, Tensor]] = []
        for item in gradients:
            tensor, target = values.view(Ref(name=item.name)), training.gradient(item.target)
            if tensor.buffer != target.buffer:
                elsewhere.append((tensor, target))
            self._placed[(item.kind, item.target)] = target
        values.copy_each(elsewhere)

    def place_all(self) -> dict[tuple[str, str], Tensor]:
        """Return where all outputs are."""
        gradients = [i for i in self._graph.outputs if i.kind in ("gradient", "gradient_sum")]
        self._put([i for i in gradients if (i.kind, i.target) not in self._placed])
        return {
            (item.kind, item.target): self._placed.get((item.kind, item.target))
            or self._place(item)
            for item in self._graph.outputs
        }

    def _place(self, item: GraphOutput) -> Tensor:
        """Return where an output is, other than a gradient."""
        values, training = self._build.values, self._build.training
        if item.kind == "parameter":
            return training.masters[item.target]
        if item.kind in training.kept:
            return training.kept[item.kind][item.target]
        if item.kind == "buffer":
            return self._kept_buffer(item)
        made = values.view(Ref(name=item.name))
        own = self._build.memory.buffer(made).place == "arena"
        if own and is_rows_with_gaps(made.shape, made.layout):
            return made  # a copy of a text model's logits takes longer than several of its layers
        return values.tensor(Ref(name=item.name))

    def _kept_buffer(self, item: GraphOutput) -> Tensor:
        """The state's own memory of a buffer; new content that is elsewhere is copied there."""
        values = self._build.values
        state = self._build.inputs.state(Ref(name=self._state_of[item.name]))
        made = values.tensor(Ref(name=item.name))
        if made.buffer != state.buffer:
            values.copy(made, state)
        return state
