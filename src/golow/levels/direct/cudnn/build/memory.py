"""The memory of a plan: what is allocated for values, for steps alone and for what steps share."""

from __future__ import annotations

from collections.abc import Sequence

from golow.levels.direct.buffers import UNDECIDED, Buffers
from golow.levels.direct.cudnn.build.load_once import Loading
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.steps.built_plan import Cell, Fill, Tensor
from golow.levels.direct.node import CurrentNode
from golow.lower.ir.graph import Value
from golow.lower.plan.memory_traffic import SCRATCH
from golow.lower.plan.plan import Buffer, Place

CELL_BYTES = 12  # size of the largest small structure that kernels share


class PlanMemory:
    """buffers: all of it. fills: what is written while loading. cells: the small structures that
    exist so far."""

    def __init__(self, current: CurrentNode, loading: Loading) -> None:
        self._current, self._loading = current, loading
        self.buffers = Buffers()
        self.fills: list[Fill] = []
        self.cells: dict[Cell, Tensor] = {}

    def new(
        self, name: str, shape: Sequence[int], layout: Layout, place: Place = "arena"
    ) -> Tensor:
        """Allocate memory for a value."""
        if self._loading.once and place == "arena":
            place = UNDECIDED
        size = layout.extent(shape) * ITEM_BYTES[layout.dtype]
        return Tensor(self.buffers.add(name, size, place), tuple(shape), layout)

    def scratch(self, elements: int, dtype: str = "float32") -> Tensor:
        """Allocate memory that only the current node uses."""
        return self.new(f"{self._current.name}{SCRATCH}", (elements,), Layout(dtype))

    def constant(self, value: Value, layout: Layout) -> Tensor:
        """Allocate memory for a weight that no step changes, filled when loading."""
        place = "constant" if self._current.trains else UNDECIDED
        tensor = self.new(value.name, value.shape, layout, place)
        self.fills.append(Fill(value.name, tensor))
        return tensor

    def number(self, value: float) -> Tensor:
        """Return a float32 constant in GPU memory."""
        tensor = self.new(f"{value:g}", (), Layout("float32"), "constant")
        self.fills.append(Fill(value, tensor))
        return tensor

    def cell(self, cell: Cell) -> Tensor:
        """Return the memory of a small structure that steps share."""
        if cell not in self.cells:
            self.cells[cell] = self.new(str(cell), (CELL_BYTES,), Layout("uint8"), "state")
        return self.cells[cell]

    def buffer(self, tensor: Tensor) -> Buffer:
        """Return the memory of a tensor."""
        return self.buffers.all[tensor.buffer]

    def has_place(self, place: Place) -> bool:
        """True if any buffer is in this place."""
        return any(buffer.place == place for buffer in self.buffers.all)
