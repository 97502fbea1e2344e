"""Weights that a plan reads where the caller has them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.onednn.run.shared_weights import Place, Region
from golow.levels.direct.onednn.steps.built_plan import Built, Tensor

WEIGHTS = ("parameter", "buffer")
Key = tuple[str, str]


class Lent(NamedTuple):
    """A weight of the caller's. owner: what keeps the memory while it lives."""

    address: int
    owner: object


class Borrowed(Region):
    """Memory of the caller's, of this many bytes."""

    def __init__(self, lent: Lent, size: int) -> None:
        address, self._owner = lent
        self.map: Any = (ctypes.c_uint8 * size).from_address(address)
        self.bytes = np.frombuffer(memoryview(self.map), dtype=np.uint8)
        self.address = address


def weights_of(built: Built) -> dict[Key, Tensor]:
    """The parameters and buffers that a plan reads."""
    return {key: tensor for key, tensor in built.inputs.items() if key[0] in WEIGHTS}


def prepared(built: Built) -> Iterator[tuple[str, str]]:
    """Yield the weights that a plan does not read as they are, each with the operation that reads
    it before the first iteration."""
    once = [step for step in built.plan.steps if step.once]
    for (_, name), tensor in weights_of(built).items():
        reading = [s for s in once if any(read.buffer == tensor.buffer for read in s.reads)]
        if reading:
            yield name, reading[0].operation
        elif not _is_whole(built, tensor):
            yield name, "copy"


def _is_whole(built: Built, tensor: Tensor) -> bool:
    """True if it is a constant in PyTorch's order, alone in its buffer."""
    plain = tensor.descriptor is None or tensor.layout.is_plain
    return plain and not tensor.offset and built.plan.buffers[tensor.buffer].place == "constant"


def borrowed(lent: Lent, tensor: Tensor) -> Place:
    """The place of a weight in the caller's memory."""
    return Place(Borrowed(lent, tensor.bytes), 0)
