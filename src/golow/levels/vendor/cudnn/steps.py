"""What a built plan is made of: tensors in memory, calls of kernels and engines, what is filled in
when loading."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from golow.levels.vendor.cudnn.kernels import Kernel
from golow.levels.vendor.cudnn.layouts import Layout
from golow.lower.operator import Operator
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


class Cell(NamedTuple):
    """A few bytes that steps share. position: the number of the current batch; loss_scale:
    `SCALER`; dropout: `CONTROL`, one for each probability that layers have."""

    kind: Literal["position", "loss_scale", "dropout"]
    probability: float = 0.0

    def __str__(self) -> str:
        return f"dropout {self.probability}" if self.kind == "dropout" else self.kind


POSITION, LOSS_SCALE = Cell("position"), Cell("loss_scale")


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
    """Launch a kernel on whole places of the plan: the pointers are those of a first place and of
    further ones, of tensors, and None for what is absent. make: the kernel for so many elements of
    the first place, which are of this dtype."""

    make: Callable[[int], Kernel]
    dtype: str
    first: Place
    arguments: tuple[Place | Tensor | None, ...]


Call = KernelCall | EngineCall | FlatCall


class Fill(NamedTuple):
    """What a buffer holds from the moment of loading on: a value of the graph that depends on
    weights alone, or a number."""

    value: str | float
    tensor: Tensor


class Built(NamedTuple):
    """A plan and what executes it: one call a step; what is filled in when loading; parameters with
    their copies in half precision; where the graph's ends are; what the graph computes
    from weights alone, by the value's name."""

    plan: Plan
    calls: tuple[Call, ...]
    fills: tuple[Fill, ...]
    copies: tuple[tuple[Tensor, Tensor], ...]
    inputs: dict[tuple[str, str], Tensor]
    outputs: dict[tuple[str, str], Tensor]
    cells: dict[Cell, Tensor]
    constants: dict[str, Operator]
