"""`cudnn` as the device of a compiled model that generates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from golow.levels.called.generation.generation import Generation
from golow.levels.called.gpu import OneGpu, batch_bytes, type_name
from golow.levels.called.one_size import OneSize
from golow.levels.called.target import Run, largest_arena, roomy

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.run.called_plan import CalledPlan


class GeneratingGpu:
    """Plans of one model over one cache, each a CUDA graph on torch's current stream. cache:
    golow's folder for what is built."""

    def __init__(self, target: OneGpu, cache: Path) -> None:
        from golow.levels.direct.cudnn.run.kept_buffers import KeptBuffers

        self.target, self._engines = target, target.engines_for(cache, tune=False)
        self._kept, self._weights = KeptBuffers(), target.shared_weights()
        self._plans: dict[int, CalledPlan] = {}  # by the number of new tokens

    def add(
        self, count: int, one: OneSize, state: Mapping[str, Tensor], sample: Sequence[Tensor]
    ) -> CalledPlan:
        """Build the plan of a lowered step of this many tokens. state: the module's state dict;
        sample: inputs."""
        from golow.levels.direct.cudnn.run.called_plan import CalledPlan

        self.target.building()
        plan = CalledPlan(
            one.graph,
            one.reading(state, self.target.array),
            self._engines,
            precision=self.target.precision,
            given={str(k): type_name(item) for k, item in enumerate(sample)},
            outputs=["float32"],
            example=batch_bytes("input", sample),
            tune=False,
            kept=self._kept,
        )
        plan.share(self._weights)
        self._plans[count] = plan
        return plan

    def running(self, generation: Generation, vocabulary: int) -> tuple[dict[int, Run], Run | None]:
        """The plans over one memory for iterations, and that of one new token which chooses the
        next ones itself."""
        from golow.levels.direct.cudnn.run.called_plan import Moving

        with roomy():
            arena = self.target.arena(largest_arena(self._plans.values()), len(self._plans) + 1)
            runs = {count: self.target.running(plan, arena) for count, plan in self._plans.items()}
            texts = Moving(generation.batch, vocabulary, generation.longest)
            return runs, self._plans[1].running(arena, self.target.current_stream, texts)

    def clear(self) -> None:
        """Set the caches to zero."""
        self.target.wait()
        self._kept.clear(self._engines.gpu)

    def bytes(self) -> dict[str, int]:
        """Return bytes of weights and caches, once for all plans, and of iterations."""
        return {
            "weights": self._weights.bytes,
            "cache": self._kept.bytes,
            "iteration": largest_arena(self._plans.values()),
        }

    def close(self) -> None:
        """Release all memory."""
        self.target.wait()
        self._plans = {}
        self._weights.close()
        self._kept.close()
