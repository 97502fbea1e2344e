"""Collects the steps of a plan in order, each with the call that executes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from golow.levels.direct.buffers import UNDECIDED
from golow.levels.direct.node import CurrentNode
from golow.levels.direct.onednn.bindings.constants import SCRATCHPAD
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.memory import PlanMemory
from golow.levels.direct.onednn.kernels import Kernel
from golow.levels.direct.onednn.steps.built_plan import (
    ArrayCall,
    Call,
    KernelCall,
    PrimitiveCall,
    Tensor,
)
from golow.lower.ir.operator import PREFIX
from golow.lower.plan.plan import Step


class StepList:
    """Adds steps for the current node. nodes: the position in the graph of each step's node.
    written: the step that last wrote a buffer."""

    def __init__(self, current: CurrentNode, memory: PlanMemory) -> None:
        self._current, self._memory = current, memory
        self.steps: list[Step] = []
        self.calls: list[Call] = []
        self.nodes: list[int] = []
        self.written: dict[int, int] = {}

    def call(
        self,
        primitive: Primitive,
        reads: Mapping[int, Tensor],
        writes: Mapping[int, Tensor],
        operation: str = "",
        adds_to: Tensor | None = None,
    ) -> None:
        """Add a primitive as a step; only this step uses its scratchpad. adds_to: what the memory
        of the result holds before, if the primitive reads it."""
        size = primitive.scratchpad
        scratch = {SCRATCHPAD: self._memory.scratch(size)} if size.bytes else {}
        everything = {**reads, **writes, **scratch}
        self._add(
            PrimitiveCall(primitive, everything),
            [*reads.values(), *([] if adds_to is None else [adds_to])],
            [*writes.values(), *scratch.values()],
            primitive.implementation,
            operation,
        )

    def array_call(
        self, function: Callable[..., None], reads: Sequence[Tensor], writes: Sequence[Tensor]
    ) -> None:
        """Add a function of row-major NumPy arrays as a step; it gets ``reads``, ``writes``."""
        self._add(ArrayCall(function, (*reads, *writes)), reads, writes, "numpy")

    def kernel(
        self,
        kernel: Kernel,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        operation: str = "",
        beside: Sequence[np.ndarray] = (),
    ) -> None:
        """Add a generated kernel as a step; its pointers are ``reads``, ``writes``, and memory
        outside the plan."""
        call = KernelCall(kernel, (*reads, *writes), beside)
        self._add(call, reads, writes, "generated", operation)

    def _add(
        self,
        call: Call,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        implementation: str,
        operation: str = "",
    ) -> None:
        buffers, node = self._memory.buffers, self._current.node
        places = {buffers.place(tensor.buffer) for tensor in reads}
        once = places <= {UNDECIDED} and not self._current.trains
        once = once and not any(map(self._is_repeated, writes))
        for tensor in writes if once else ():
            buffers.move(tensor.buffer, UNDECIDED)
        self.written |= {tensor.buffer: len(self.steps) for tensor in writes}
        self.calls.append(call)
        self.nodes.append(self._current.position)
        self.steps.append(
            Step(
                operation or node.op.removeprefix(PREFIX),
                (node.module, *node.absorbed),
                node.phase,
                tuple(tensor.operand for tensor in reads),
                tuple(tensor.operand for tensor in writes),
                implementation,
                once,
            )
        )

    def _is_repeated(self, tensor: Tensor) -> bool:
        """True if each iteration writes the tensor's memory."""
        position = self.written.get(tensor.buffer)
        return position is not None and not self.steps[position].once
