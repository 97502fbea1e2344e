"""The parts of a built plan: tensors in memory, calls of kernels and engines, and what is filled in
while loading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import TENSOR_ALIGNMENT, UNIT, Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.lower.ir.graph import Graph
from golow.lower.ir.operator import Operator
from golow.lower.plan.plan import Place, Plan

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine

# How many steps may be enqueued before an earlier side step must be done.
WINDOW = 12
# Place of counters that are zero between steps: a kernel's last block to arrive is found by them.
ARRIVALS: Place = "arrivals"
# Place of buffers that inference changes, such as caches of keys and values.
KEPT: Place = "kept"


class Tensor(NamedTuple):
    """A value in memory. offset: in bytes from the start of its buffer."""

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
        """Number of elements in memory."""
        return self.layout.elements(self.shape)


def is_aligned(tensor: Tensor) -> bool:
    """True if kernels that load vectors can read it; a view may begin anywhere."""
    return tensor.offset % TENSOR_ALIGNMENT == 0


def is_dense(tensor: Tensor) -> bool:
    """True if kernels that know nothing of views can read it."""
    return tensor.layout.order != "strided" and is_aligned(tensor)


def alignment_of(tensors: Iterable[Tensor]) -> int:
    """Alignment of the addresses of a product's operands, which begin at units at least."""
    return TENSOR_ALIGNMENT if all(map(is_aligned, tensors)) else UNIT


def aligned(tensor: Tensor) -> tuple[Tensor, int]:
    """The tensor from an aligned address on, and the index of its first element there."""
    rest = tensor.offset % TENSOR_ALIGNMENT
    return tensor._replace(offset=tensor.offset - rest), rest // ITEM_BYTES[tensor.dtype]


class Cell(NamedTuple):
    """A few bytes that steps share. position: the index of the current batch; loss_scale: a
    `SCALER`; dropout: a `CONTROL`, one for each probability in the network."""

    kind: Literal["position", "loss_scale", "dropout"]
    probability: float = 0.0

    def __str__(self) -> str:
        return f"dropout {self.probability}" if self.kind == "dropout" else self.kind


POSITION, LOSS_SCALE = Cell("position"), Cell("loss_scale")


class KernelCall(NamedTuple):
    """Launch a kernel on these tensors. names: of a generated kernel, what some of its C names are
    in the graph. They are not part of its source, so that layers share its code."""

    kernel: Kernel
    arguments: tuple[Tensor | None, ...]
    names: tuple[tuple[str, str], ...] = ()


class EngineCall(NamedTuple):
    """Run an engine on these tensors. side: alongside the next steps, at most `WINDOW` of them."""

    engine: Engine
    arguments: tuple[Tensor, ...]
    workspace: Tensor | None
    side: bool = False


class FlatCall(NamedTuple):
    """Launch a kernel on whole places of the plan. Its pointers are a first place, then further
    places and tensors; None is absent. make: returns the kernel for that many elements of the first
    place, which have this dtype."""

    make: Callable[[int], Kernel]
    dtype: str
    first: Place
    arguments: tuple[Place | Tensor | None, ...]


class AverageCall(NamedTuple):
    """Replace the elements of whole places of the plan with their means over all ranks, alongside
    the next steps. places: each with its elements' dtype."""

    places: tuple[tuple[Place, str], ...]


Call = KernelCall | EngineCall | FlatCall | AverageCall


class Fill(NamedTuple):
    """The content of a buffer from loading on: a value of the graph that depends on weights alone,
    or a number."""

    value: str | float
    tensor: Tensor


class Built(NamedTuple):
    """A plan and what executes it: graph, as the plan follows it; calls, one for each step; fills,
    written while loading; copies, pairs of a parameter and its copy in half precision; inputs and
    outputs, the ends of the graph; constants, what is computed from weights alone by NumPy, by the
    value's name; made, what that reads of the results of steps; values, those that are in memory
    after the step of that position (-1: after loading)."""

    graph: Graph
    plan: Plan
    calls: tuple[Call, ...]
    fills: tuple[Fill, ...]
    copies: tuple[tuple[Tensor, Tensor], ...]
    inputs: dict[tuple[str, str], Tensor]
    outputs: dict[tuple[str, str], Tensor]
    cells: dict[Cell, Tensor]
    constants: dict[str, Operator]
    made: dict[str, Tensor]
    values: dict[str, tuple[Tensor, int]]
