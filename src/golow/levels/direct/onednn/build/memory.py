"""The memory of a plan: what is allocated for values and for steps alone, and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from golow.levels.direct.buffers import UNDECIDED, Buffers
from golow.levels.direct.node import CurrentNode
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.steps.built_plan import DTYPES, Tensor
from golow.lower.plan.memory_traffic import SCRATCH
from golow.lower.plan.plan import Buffer, Place


class PlanMemory:
    """buffers: all of it. constants: the content of some of them, by their numbers."""

    def __init__(self, current: CurrentNode) -> None:
        self._current = current
        self.buffers = Buffers()
        self.constants: dict[int, np.ndarray] = {}

    def new(
        self,
        name: str,
        shape: Sequence[int],
        descriptor: Descriptor | None = None,
        dtype: str = "float32",
        place: Place = "arena",
    ) -> Tensor:
        """Allocate memory for a value; the step that writes it decides its place."""
        size = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        size = descriptor.bytes if descriptor is not None else size
        return Tensor(self.buffers.add(name, size, place), tuple(shape), dtype, descriptor)

    def scratch(self, layout: Descriptor) -> Tensor:
        """Allocate memory of that layout that only the current node uses."""
        name = f"{self._current.name}{SCRATCH}"
        return self.new(name, (layout.bytes // 4,), layout)

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        """Allocate a float32 constant with this content, row-major."""
        data = np.ascontiguousarray(array, dtype=np.float32)
        tensor = self.new(name, data.shape, Descriptor.plain(data.shape), place=UNDECIDED)
        self.constants[tensor.buffer] = data
        return tensor

    def buffer(self, tensor: Tensor) -> Buffer:
        """Return the memory of a tensor."""
        return self.buffers.all[tensor.buffer]
