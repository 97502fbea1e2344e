"""`onednn` as the device of a compiled model that generates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from golow.levels.called.generation.generation import Generation
from golow.levels.called.one_size import OneSize
from golow.levels.called.processor import Processor
from golow.levels.called.target import Run, largest_arena, over_one_arena
from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.run.called_plan import CalledPlan
from golow.levels.direct.onednn.run.kernel_compilation import Workshop
from golow.levels.direct.onednn.run.mutable_state import MutableState


class GeneratingProcessor:
    """Plans of one model over one cache. All of them read weights in PyTorch's order, so that they
    share them. cache: golow's folder for what is built."""

    def __init__(self, target: Processor, cache: Path) -> None:
        self.target = target
        self._state, self._weights = MutableState(), target.shared_weights()
        self._plans: dict[int, CalledPlan] = {}  # by the number of new tokens
        target.building()
        compiler = find_compiler()
        self._workshop = Workshop(compiler, cache / target.level) if compiler else None

    def add(
        self, count: int, one: OneSize, state: Mapping[str, Tensor], sample: Sequence[Tensor]
    ) -> CalledPlan:
        """Build the plan of a lowered step of this many tokens. state: the module's state dict;
        sample: inputs."""
        self.target.building()
        read = one.reading(state, self.target.array)
        plan = CalledPlan(one.graph, read, self._workshop, as_stored=True, state=self._state)
        plan.share(self._weights)
        self._plans[count] = plan
        return plan

    def running(self, generation: Generation, vocabulary: int) -> tuple[dict[int, Run], Run | None]:
        """The plans over one memory for iterations; none of them chooses tokens."""
        return over_one_arena(self.target, self._plans), None

    def clear(self) -> None:
        """Set the caches to zero."""
        self._state.clear(["buffer"])

    def bytes(self) -> dict[str, int]:
        """Return bytes of weights and caches, once for all plans, and of iterations."""
        return {
            "weights": self._weights.bytes,
            "cache": self._state.bytes,
            "iteration": largest_arena(self._plans.values()),
        }

    def close(self) -> None:
        """Release all memory."""
        self._plans, self._state = {}, MutableState()
        self._weights.close()
