"""What a built plan is made of: tensors in memory, calls of kernels and engines, what is filled in
when loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.vendor.cudnn.kernels import Kernel
from golow.levels.vendor.cudnn.layouts import Layout
from golow.lower.graph import Node
from golow.lower.plan import Place, Plan

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engine

# Steps that may be enqueued before one beside them has to be done.
WINDOW = 12


class Tensor(NamedTuple):
    """A value in memory. offset: bytes into its buffer."""

    buffer: int
    shape: tuple[int, ...]
    layout: Layout
    offset: int = 0

    @property
    def dtype(self) -> str:
        """The type in which it is stored."""
        return self.layout.dtype

    @property
    def elements(self) -> int:
        """How many lie in memory."""
        return self.layout.elements(self.shape)


class KernelCall(NamedTuple):
    """Launch a kernel on these tensors."""

    kernel: Kernel
    arguments: tuple[Tensor | None, ...]


class EngineCall(NamedTuple):
    """Run an engine on these tensors. side: beside the steps that follow, at most `WINDOW`."""

    engine: Engine
    arguments: tuple[Tensor, ...]
    workspace: Tensor | None
    side: bool = False


class FlatCall(NamedTuple):
    """Launch a kernel on whole places of the plan, named in the order of its pointers; tensors may
    stand among them, and None for what is absent. make: the kernel for so many elements of the
    first place, which are of this dtype."""

    make: Callable[[int], Kernel]
    arguments: tuple[Place | Tensor | None, ...]
    dtype: str


Call = KernelCall | EngineCall | FlatCall


class Fill(NamedTuple):
    """What a buffer holds from the moment of loading on: a value of the graph that depends on
    weights alone, or a number."""

    value: str | float
    tensor: Tensor


class Built(NamedTuple):
    """A plan and what executes it: one call a step; what is filled in when loading; parameters with
    their copies in half precision; where the graph's ends are; the graph's own nodes that compute
    from weights alone."""

    plan: Plan
    calls: tuple[Call, ...]
    fills: tuple[Fill, ...]
    copies: tuple[tuple[Tensor, Tensor], ...]
    inputs: dict[tuple[str, str], Tensor]
    outputs: dict[tuple[str, str], Tensor]
    cells: dict[str, Tensor]
    constants: dict[str, Node]
