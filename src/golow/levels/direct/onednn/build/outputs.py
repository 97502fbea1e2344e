"""The ends of the graph: what a plan returns, and what it keeps for the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.analysis.liveness import state_outputs
from golow.lower.ir.graph import GraphOutput, Ref

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


class Outputs:
    """The outputs of a builder's graph."""

    def __init__(self, build: Builder) -> None:
        self._build, self._current = build, build.current
        self._state_of = state_outputs(build.current.graph)

    def state_for(self, index: int) -> Tensor | None:
        """Return the memory of the parameter, momentum or buffer that the current node's value
        updates; None if it updates none, or if the old content is still needed."""
        value = self._current.node.outputs[index]
        source = self._state_of.get(value.name) if value is not None else None
        if source is None:
            return None
        return self._tensor(source) if self._current.is_read_last(source) else None

    def keep_state(self) -> None:
        """Copy new contents of parameters and buffers that were not written in place."""
        for item in self._current.graph.outputs:
            if item.name not in self._state_of or item.name in self._current.sources:
                continue
            state, made = self._tensor(self._state_of[item.name]), self._tensor(item.name)
            if made.buffer != state.buffer:
                self._build.values.copy(made, state)

    def copy_passed_inputs(self) -> None:
        """An output that is an input, or a view of one, gets its own memory: where an input is
        stored changes with the batch."""
        build = self._build
        for item in self._returned():
            made = self._tensor(item.name)
            if build.memory.buffer(made).place == "input":
                copy = build.memory.new(item.name, made.shape, made.descriptor, made.dtype)
                build.values.copy(made, copy)
                build.values.keep(item.name, copy)

    def returned_buffers(self) -> list[int]:
        """The buffers of what the plan returns, which are read after the last step."""
        return [self._tensor(item.name).buffer for item in self._returned()]

    def place_all(self) -> dict[tuple[str, str], tuple[Tensor, int]]:
        """Return where all outputs are, by kind and target, and the steps that make them."""
        made_at = self._build.values.made_at
        return {
            (item.kind, item.target): (self._tensor(item.name), made_at(item.name))
            for item in self._current.graph.outputs
        }

    def _returned(self) -> list[GraphOutput]:
        return [item for item in self._current.graph.outputs if item.kind in ("output", "loss")]

    def _tensor(self, name: str) -> Tensor:
        return self._build.values.tensor(Ref(name=name))
