"""The parts of a built plan: tensors in memory, the calls that work on them, and the inputs and
outputs of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from ml_dtypes import bfloat16

from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.kernels import Kernel
from golow.levels.direct.onednn.kernels.dropout import generator
from golow.lower.ir.graph import Graph
from golow.lower.plan.plan import Operand, Plan

DTYPES: dict[str, type[np.generic]] = {  # types in memory
    "float32": np.float32,
    "int64": np.int64,
    "int32": np.int32,
    "int8": np.int8,
    "uint8": np.uint8,
    "bool": np.bool_,
    "bfloat16": bfloat16,
}
COMPUTED = DTYPES.keys() - {"bfloat16"}
"""Types of values of any operator; others are of those that name them."""


class Tensor(NamedTuple):
    """A value in memory. descriptor: None for integers that oneDNN does not compute with. offset:
    of its first element in the buffer, in bytes. flags: a byte for each row of a table; the rows
    whose byte is 0 are zeros, whatever is in memory."""

    buffer: int
    shape: tuple[int, ...]
    dtype: str
    descriptor: Descriptor | None
    offset: int = 0
    flags: Tensor | None = None

    @property
    def layout(self) -> Descriptor:
        """The descriptor. Raises LookupError for a value without one."""
        if self.descriptor is None:
            raise LookupError(f"oneDNN has no layout for {self.dtype}")
        return self.descriptor

    @property
    def bytes(self) -> int:
        """Size of its elements without padding, each once however often a view repeats it."""
        item = np.dtype(DTYPES.get(self.dtype, np.uint8)).itemsize
        if self.descriptor is None:
            return math.prod(self.shape) * item
        shape, strides = self.descriptor.shape, self.descriptor.strides
        return math.prod(n for n, s in zip(shape, strides, strict=True) if s) * item

    @property
    def operand(self) -> Operand:
        """Operand as the plan describes it."""
        layout = str(self.descriptor) if self.descriptor is not None else self.dtype
        return Operand(self.buffer, self.shape, layout, self.bytes)


class PrimitiveCall(NamedTuple):
    """Run a primitive on these arguments."""

    primitive: Primitive
    arguments: Mapping[int, Tensor]


class ArrayCall(NamedTuple):
    """Run a function on NumPy arrays over these tensors, which are all row-major."""

    function: Callable[..., None]
    arguments: Sequence[Tensor]


class KernelCall(NamedTuple):
    """Run a generated kernel on these tensors, in the order of its pointers. beside: memory outside
    the plan, which its last pointers are."""

    kernel: Kernel
    arguments: Sequence[Tensor]
    beside: Sequence[np.ndarray] = ()


Call = PrimitiveCall | ArrayCall | KernelCall


class Built(NamedTuple):
    """A plan and what executes it: graph, as the plan follows it; calls, one for each step; nodes,
    the position in the graph of each step's node; the inputs and outputs of the graph; values,
    those that are in memory after the step of that position (-1: after loading)."""

    graph: Graph
    plan: Plan
    calls: tuple[Call, ...]
    nodes: tuple[int, ...]
    inputs: dict[tuple[str, str], Tensor]
    outputs: dict[tuple[str, str], tuple[Tensor, int]]
    values: dict[str, tuple[Tensor, int]]
    constants: dict[int, np.ndarray]

    @property
    def codes(self) -> tuple[str, ...]:
        """The code of every generated kernel, each once."""
        codes = (call.kernel.code for call in self.calls if isinstance(call, KernelCall))
        return tuple(dict.fromkeys(codes))


Mean = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]
"""Writes the means of arrays over ranks into others."""


class Switches:
    """Switches that may change between iterations without building a new plan. mean: over the ranks
    of the training run. generator: the random numbers of kernels; random: the same for NumPy."""

    def __init__(self, seed: int, mean: Mean | None = None) -> None:
        self.generator = generator(seed)
        self.random = np.random.Generator(np.random.PCG64(seed))
        self.mean = mean or _without_ranks

    @property
    def dropout(self) -> bool:
        """True if random layers drop."""
        return bool(self.generator["active"])

    @dropout.setter
    def dropout(self, active: bool) -> None:
        self.generator["active"] = active


def _without_ranks(arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> None:
    raise LookupError("the plan averages over ranks, and there are none")
