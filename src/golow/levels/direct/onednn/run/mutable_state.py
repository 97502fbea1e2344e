"""The memory of what steps change, for several plans of one network."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping

import numpy as np

from golow.levels.direct.bundle_arrays import STATE
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.inputs import Key
from golow.levels.direct.onednn.run.execution import Execution
from golow.levels.direct.onednn.run.shared_weights import Place, Region
from golow.levels.direct.onednn.steps.built_plan import Built, Tensor
from golow.lower.plan.arena_offsets import CACHE_LINE

RATE = "learning_rate"
KINDS = (*STATE, RATE)


class MutableState:
    """Parameters, buffers, what the optimizer keeps, and the learning rate, by kind and target.

    The first plan that has one of them decides its layout; the others are built for it
    (`layouts`). bytes: of all that it holds.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._places: dict[Key, Place] = {}
        self._regions: dict[str, list[tuple[Region, int]]] = {}
        self._layouts: dict[Key, Descriptor] = {}
        self._held: dict[Key, tuple[Execution, Tensor]] = {}

    @property
    def layouts(self) -> Mapping[Key, Descriptor]:
        """Layouts for which the next plan is to be built."""
        return self._layouts

    def places(self, built: Built) -> dict[int, Place]:
        """Where a plan's buffers are, with room for what no plan had before."""
        buffers = built.plan.buffers
        found = {
            key: tensor
            for key, tensor in built.inputs.items()
            if buffers[tensor.buffer].place == "state"
        }
        for kind in KINDS:
            new = {key: item for key, item in found.items() if key[0] == kind}
            self._make_room(
                kind,
                {
                    key: buffers[item.buffer].bytes
                    for key, item in new.items()
                    if key not in self._places
                },
            )
        for key, tensor in found.items():
            if tensor.descriptor is not None:
                self._layouts.setdefault(key, tensor.descriptor)
        return {tensor.buffer: self._places[key] for key, tensor in found.items()}

    def hold(self, execution: Execution) -> None:
        """Read and write through an execution whose buffers are in these places."""
        for key, tensor in execution.built.inputs.items():
            if key in self._places:
                self._held.setdefault(key, (execution, tensor))

    def has(self, key: Key) -> bool:
        """True if a plan has it."""
        return key in self._held

    def keys(self, *kinds: str) -> list[Key]:
        """Keys of the tensors of these kinds."""
        return [key for key in self._held if key[0] in kinds]

    def shape(self, key: Key) -> tuple[int, ...]:
        """Its shape."""
        return self._held[key][1].shape

    def read(self, key: Key) -> np.ndarray:
        """A copy of its content, in PyTorch's order."""
        execution, tensor = self._held[key]
        return execution.read(tensor)

    def write(self, key: Key, array: np.ndarray) -> None:
        """Give it the content of an array in PyTorch's order."""
        execution, tensor = self._held[key]
        execution.write(tensor, array)

    def set_rate(self, rate: float, group: str = "") -> None:
        """Set the learning rate of the next iterations, with its sign reversed: see
        optimizer_updates.py. group: of which parameters."""
        key = (RATE, group)
        if key in self._held:
            self.write(key, np.array([-rate], np.float32))

    def clear(self, kinds: Iterable[str]) -> None:
        """Set everything of these kinds to zero."""
        for kind in kinds:
            for region, size in self._regions.get(kind, ()):
                ctypes.memset(region.address, 0, size)

    def _make_room(self, kind: str, sizes: Mapping[Key, int]) -> None:
        total = sum(map(_rounded, sizes.values()))
        if not sizes:
            return
        region, offset = Region(total), 0
        self._regions.setdefault(kind, []).append((region, total))
        self.bytes += total
        for key, size in sizes.items():
            self._places[key] = Place(region, offset)
            offset += _rounded(size)


def _rounded(size: int) -> int:
    return math.ceil(size / CACHE_LINE) * CACHE_LINE
