"""Collects the steps of a plan in order, each with the call that executes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.load_once import Loading
from golow.levels.direct.cudnn.build.memory import PlanMemory
from golow.levels.direct.cudnn.build.training_state import Group, place_of
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import Launches
from golow.levels.direct.cudnn.steps.built_plan import (
    WINDOW,
    AverageCall,
    Call,
    EngineCall,
    FlatCall,
    KernelCall,
    Tensor,
)
from golow.levels.direct.node import CurrentNode
from golow.lower.plan.plan import Operand, Place, Step

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine


class StepList:
    """Adds steps for the current node. batches: how many of an input are in memory. late: the
    position until which a step's operands must stay, for steps on the side stream."""

    def __init__(
        self, current: CurrentNode, memory: PlanMemory, loading: Loading, batches: int
    ) -> None:
        self._current, self._memory, self._loading = current, memory, loading
        self._batches = batches
        self.steps: list[Step] = []
        self.calls: list[Call] = []
        self.late: dict[int, int] = {}

    def last(self) -> int:
        """Return the position of the last step of an iteration so far; -1 if there is none."""
        positions = range(len(self.steps) - 1, -1, -1)
        return next((position for position in positions if not self.steps[position].once), -1)

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
        scratch = self._memory.scratch(launches.scratch) if launches.scratch else None
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
        workspace = self._memory.scratch(engine.workspace, "uint8") if engine.workspace else None
        call = EngineCall(engine, (*reads, *writes), workspace, side)
        if side:
            self.late[len(self.steps)] = len(self.steps) + WINDOW
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
        whole, besides those tensors, one mention for each time."""
        self.calls.append(FlatCall(make, dtype, first, arguments))
        operands = tuple(map(self._operand, reads))
        self.steps.append(Step(operation, ("",), "update", operands, (), places=tuple(moves)))

    def average(self, groups: Sequence[tuple[Group, str]], gradients: Sequence[Tensor]) -> None:
        """Add the mean over all ranks of these groups' gradients as a step, as in `AverageCall`.
        groups: each with the type of its gradients."""
        places = tuple((place_of("gradient", group), dtype) for group, dtype in groups)
        operands = [(tensor, True) for tensor in gradients]
        self._add(AverageCall(places), operands, operands, "", "NCCL")

    def _add(
        self,
        call: Call,
        reads: Sequence[tuple[Tensor | None, bool]],
        writes: Sequence[tuple[Tensor | None, bool]],
        operation: str,
        implementation: str,
    ) -> None:
        """reads, writes: with each tensor, whether its memory is moved."""
        self.calls.append(call)
        node = self._current.node
        self.steps.append(
            Step(
                operation or node.op.split(".")[1],
                (node.module, *node.absorbed),
                node.phase,
                tuple(self._operand(t, moved) for t, moved in reads if t is not None),
                tuple(self._operand(t, moved) for t, moved in writes if t is not None),
                implementation,
                self._loading.once,
            )
        )

    def _operand(self, tensor: Tensor, moved: bool = True) -> Operand:
        layout, size = str(tensor.layout), self._bytes_of(tensor) if moved else 0
        return Operand(tensor.buffer, tensor.shape, layout, size)

    def _bytes_of(self, tensor: Tensor) -> int:
        """How much of a tensor a step reads or writes: its elements, each once however often a view
        repeats it; of all batches, one."""
        elements = tensor.elements
        if tensor.layout.order == "strided":
            steps = zip(tensor.shape, tensor.layout.steps, strict=True)
            elements = math.prod(size for size, step in steps if step)
        batches = self._batches if self._memory.buffer(tensor).place == "input" else 1
        return elements * ITEM_BYTES[tensor.dtype] // batches
