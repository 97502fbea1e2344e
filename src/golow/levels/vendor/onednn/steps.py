"""What a built plan consists of: tensors in memory, the calls that work on them, and where the
graph's ends are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.onednn.primitive import Primitive
from golow.lower.plan import Plan

DTYPES = {"float32": np.float32, "int64": np.int64, "bool": np.bool_}  # that values may have


class Tensor(NamedTuple):
    """A value in memory. descriptor is None for what oneDNN does not compute with (integers)."""

    buffer: int
    shape: tuple[int, ...]
    dtype: str
    descriptor: Descriptor | None

    @property
    def layout(self) -> Descriptor:
        """The descriptor, which a value that oneDNN reads has."""
        if self.descriptor is None:
            raise LookupError(f"oneDNN has no layout for {self.dtype}")
        return self.descriptor


class PrimitiveCall(NamedTuple):
    """Run a primitive on these arguments."""

    primitive: Primitive
    arguments: Mapping[int, Tensor]


class ArrayCall(NamedTuple):
    """Run a function on NumPy arrays over these tensors, which are all row-major."""

    function: Callable[..., None]
    arguments: Sequence[Tensor]


class Built(NamedTuple):
    """A plan and what executes it: one call a step; the positions in the graph of the nodes that
    the steps come from; and where the graph's ends are."""

    plan: Plan
    calls: tuple[PrimitiveCall | ArrayCall, ...]
    nodes: tuple[int, ...]
    inputs: dict[tuple[str, str], Tensor]
    outputs: dict[tuple[str, str], tuple[Tensor, int]]
    constants: dict[int, np.ndarray]


class Switches:
    """What may change between iterations without a new plan."""

    dropout = True

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
