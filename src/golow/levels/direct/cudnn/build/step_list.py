"""Collects the steps of a plan in order, each with the call that executes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.kernels import Kernel
from golow.levels.direct.cudnn.kernels.blocks import Launches
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.steps.built_plan import (
    WINDOW,
    Call,
    EngineCall,
    FlatCall,
    KernelCall,
    Tensor,
)
from golow.lower.ir.graph import Node
from golow.lower.plan.plan import Operand, Place, Step

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine


class StepList:
    """Adds steps for the node that is being built; a subclass allocates scratch memory."""

    node: Node
    once = False  # whether the steps being added run only when loading

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._calls: list[Call] = []
        self._late: dict[int, int] = {}

    def scratch(self, elements: int, dtype: str = "float32") -> Tensor:
        """Allocate memory for the next step alone."""
        raise NotImplementedError

    def bytes_of(self, tensor: Tensor) -> int:
        """Return the size of a tensor's elements, each once however often a view repeats it."""
        elements = tensor.elements
        if tensor.layout.order == "strided":
            steps = zip(tensor.shape, tensor.layout.steps, strict=True)
            elements = math.prod(size for size, step in steps if step)
        return elements * ITEM_BYTES[tensor.dtype]

    def kernel(
        self,
        kernel: Kernel,
        reads: Sequence[Tensor | None],
        writes: Sequence[Tensor | None],
        operation: str = "",
        names: Sequence[tuple[str, str]] = (),
        touched: Collection[int] | None = None,
    ) -> None:
        """Add a kernel as a step; its pointers are what it reads, then what it writes. None is
        absent. names: as in `KernelCall`. touched: the indices of the pointers whose memory it
        moves; all if None."""
        call = KernelCall(kernel, (*reads, *writes), tuple(names))
        moves = [touched is None or i in touched for i in range(len(reads) + len(writes))]
        read = [*zip(reads, moves, strict=False)]
        written = [*zip(writes, moves[len(reads) :], strict=True)]
        self._add(call, read, written, operation, kernel.expression)

    def kernels(
        self,
        launches: Launches,
        reads: Sequence[Tensor | None],
        writes: Sequence[Tensor | None],
    ) -> None:
        """Add kernels that share the same pointers; the last pointer is scratch."""
        scratch = self.scratch(launches.scratch) if launches.scratch else None
        touched = launches.touched or (None,) * len(launches.kernels)
        for kernel, moved in zip(launches.kernels, touched, strict=True):
            self.kernel(kernel, reads, (*writes, scratch), touched=moved)

    def engine(
        self,
        engine: Engine,
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        operation: str = "",
        side: bool = False,
    ) -> None:
        """Add an engine as a step; only this step uses its workspace."""
        workspace = self.scratch(engine.workspace, "uint8") if engine.workspace else None
        call = EngineCall(engine, (*reads, *writes), workspace, side)
        if side:
            self._late[len(self._steps)] = len(self._steps) + WINDOW
        written = [(tensor, True) for tensor in (*writes, workspace)]
        self._add(call, [(tensor, True) for tensor in reads], written, operation, engine.name)

    def flat(
        self,
        operation: str,
        make: Callable[[int], Kernel],
        dtype: str,
        first: Place,
        *arguments: Place | Tensor | None,
        reads: Sequence[Tensor] = (),
        moves: Sequence[Place] = (),
    ) -> None:
        """Add a kernel over whole places as a step, as in `FlatCall`. reads: what must be in a
        place that has memory only for a time. moves: the places that it reads or writes as a
        whole, beside those tensors, one mention for each time."""
        self._calls.append(FlatCall(make, dtype, first, arguments))
        operands = tuple(map(self._operand, reads))
        self._steps.append(Step(operation, ("",), "update", operands, (), places=tuple(moves)))

    def _add(
        self,
        call: Call,
        reads: Sequence[tuple[Tensor | None, bool]],
        writes: Sequence[tuple[Tensor | None, bool]],
        operation: str,
        implementation: str,
    ) -> None:
        """reads, writes: with each tensor, whether its memory is moved."""
        self._calls.append(call)
        self._steps.append(
            Step(
                operation or self.node.op.split(".")[1],
                (self.node.module, *self.node.absorbed),
                self.node.phase,
                tuple(self._operand(t, moved) for t, moved in reads if t is not None),
                tuple(self._operand(t, moved) for t, moved in writes if t is not None),
                implementation,
                self.once,
            )
        )

    def _operand(self, tensor: Tensor, moved: bool = True) -> Operand:
        layout, size = str(tensor.layout), self.bytes_of(tensor) if moved else 0
        return Operand(tensor.buffer, tensor.shape, layout, size)
