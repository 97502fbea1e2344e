"""Collects the steps of a plan in order, each with the call that executes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels import ITEM_BYTES, Kernel
from golow.levels.vendor.cudnn.kernels.blocks import Launches
from golow.levels.vendor.cudnn.steps import WINDOW, Call, EngineCall, FlatCall, KernelCall, Tensor
from golow.lower.graph import Node
from golow.lower.plan import Operand, Place, Step

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engine


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
    ) -> None:
        """Add a kernel as a step; its pointers are what it reads, then what it writes. None is
        absent. names: as in `KernelCall`."""
        call = KernelCall(kernel, (*reads, *writes), tuple(names))
        self._add(call, _present(reads), _present(writes), operation, kernel.expression)

    def kernels(
        self,
        launches: Launches,
        reads: Sequence[Tensor | None],
        writes: Sequence[Tensor | None],
    ) -> None:
        """Add kernels that share the same pointers; the last pointer is scratch."""
        scratch = self.scratch(launches.scratch) if launches.scratch else None
        for kernel in launches.kernels:
            self.kernel(kernel, reads, (*writes, scratch))

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
        written = [*writes, *([workspace] if workspace else [])]
        self._add(call, reads, written, operation, engine.name)

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
        reads: Sequence[Tensor],
        writes: Sequence[Tensor],
        operation: str,
        implementation: str,
    ) -> None:
        self._calls.append(call)
        self._steps.append(
            Step(
                operation or self.node.op.split(".")[1],
                (self.node.module, *self.node.absorbed),
                self.node.phase,
                tuple(map(self._operand, reads)),
                tuple(map(self._operand, writes)),
                implementation,
                self.once,
            )
        )

    def _operand(self, tensor: Tensor) -> Operand:
        layout = str(tensor.layout)
        return Operand(tensor.buffer, tensor.shape, layout, self.bytes_of(tensor))


def _present(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not None]
