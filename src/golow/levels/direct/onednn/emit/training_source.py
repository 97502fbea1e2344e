"""The plan of a training step as C++."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.network import Sized
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.inputs import Key
from golow.levels.direct.onednn.emit.kernels import Kernels
from golow.levels.direct.onednn.emit.plan_source import Keys, PlanSource
from golow.levels.direct.onednn.steps.built_plan import Built, Tensor


class TrainingSource(PlanSource):
    """inputs: how many the network has; targets are counted after them. numbers: of what training
    changes. parts: of the whole project, and are added to."""

    def __init__(
        self,
        batch: int,
        sized: Sized[Built],
        inputs: int,
        numbers: Mapping[Key, int],
        parts: tuple[Kernels, Constants, Keys],
    ) -> None:
        built = sized.plan
        loss, _ = built.outputs["loss", "loss"]
        super().__init__(batch, built, sized.read, _given(built, inputs), [loss], parts)
        self._numbers = numbers
        for key, tensor in built.inputs.items():
            if (number := numbers.get(key)) is not None:
                size = built.plan.buffers[tensor.buffer].bytes
                self._places[tensor.buffer] = f"plan.state({number}, {size})"

    def _weight(self, key: Key, tensor: Tensor) -> str | None:
        if key not in self._numbers:
            return None
        layouts = "no_layout, no_layout"
        if tensor.descriptor is not None and not tensor.layout.is_plain:
            plain = Descriptor.plain(tensor.layout.shape)
            layouts = f"{self._layouts.layout(tensor.layout)}, {self._layouts.layout(plain)}"
        return f"plan.held({self._piece(tensor.buffer)}, {layouts});"

    def _contents(self, wanted: Collection[int]) -> Mapping[int, Sequence[np.ndarray]]:
        return {}  # nothing is computed when a training run is loaded


def _given(built: Built, inputs: int) -> list[Tensor | None]:
    """Value that calls bring, by its number."""
    places = {
        int(target) + (inputs if kind == "target" else 0): tensor
        for (kind, target), tensor in built.inputs.items()
        if kind in ("input", "target")
    }
    return [places.get(number) for number in range(max(places, default=-1) + 1)]
