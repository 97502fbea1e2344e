"""The device memory of what training changes, for several plans of one network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from golow.levels.direct.cudnn.build.training_state import (
    KEPT,
    RATE,
    Held,
    changed,
    is_of,
    is_shared,
)
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.run.device_array import DeviceArray
from golow.levels.direct.cudnn.run.device_memory import NO_STATE, SharedState
from golow.levels.direct.cudnn.run.execution import Execution
from golow.levels.direct.cudnn.shared_kernels.copies import strided_copy
from golow.levels.direct.cudnn.steps.built_plan import Built, Cell, Tensor
from golow.levels.direct.kernel_views import View
from golow.lower.plan.plan import Place

Key = tuple[str, str]  # kind and target
MASTER: Place = "master."


class TrainingState:
    """Parameters, buffers, what the optimizer keeps, learning rates and cells, in the memory of the
    first plan that has each of them. bytes: of all that it holds."""

    def __init__(self) -> None:
        self.bytes = 0
        self._plans: list[Execution] = []
        self._places: dict[Place, tuple[Execution, int]] = {}  # with their bytes
        self._held: dict[Key | Cell, tuple[Execution, Tensor]] = {}

    @property
    def is_empty(self) -> bool:
        """True if there is no plan yet."""
        return not self._plans

    @property
    def held(self) -> Mapping[str, Held]:
        """State for which the next plan is to be built."""
        if not self._plans:
            return {}
        built, found = self._plans[0].built, {}
        for (kind, target), tensor in built.inputs.items():
            place = built.plan.buffers[tensor.buffer].place
            if kind == "parameter" and place.startswith(MASTER):
                found[target] = Held(place.removeprefix(MASTER), tensor.layout, tensor.buffer)
        return found

    def shared(self, built: Built) -> SharedState:
        """State that a plan built for it shares. Raises LookupError if its parameters or
        counters are elsewhere."""
        if not self._plans:
            return NO_STATE
        places, moved = {}, {}
        for place, size in built.plan.sizes.items():
            if place in self._places:
                owner, bytes_ = self._places[place]
                region = owner.memory.place(place)
                if size != bytes_ or region is None:
                    raise LookupError(f"a plan has {size} bytes of {place}, another one {bytes_}")
                places[place] = region
        for key, tensor in changed(built).items():
            if key not in self._held:
                continue
            owner, other = self._held[key]
            mine, theirs = (
                plan.plan.buffers[t.buffer] for plan, t in ((built, tensor), (owner.built, other))
            )
            if tensor.layout != other.layout:
                raise LookupError(f"{key} has the layout {tensor.layout}, not {other.layout}")
            if mine.place in places:
                here, there = mine.offset + tensor.offset, theirs.offset + other.offset
                if (mine.place, here) != (theirs.place, there):
                    raise LookupError(f"{key} is at {here}, not at {there}")
            else:
                moved[tensor.buffer] = owner.address(other) - tensor.offset
        return SharedState(places, moved)

    def hold(self, execution: Execution) -> list[Cell]:
        """Read and write through an execution with this memory, too. Return the cells that no plan
        had before; their content is to be written."""
        plan = execution.plan
        for place, size in plan.sizes.items():
            if is_shared(place) and place not in self._places:
                self._places[place] = execution, size
                self.bytes += size
        new = []
        for key, tensor in changed(execution.built).items():
            if key in self._held:
                continue
            self._held[key] = execution, tensor
            if isinstance(key, Cell):
                new.append(key)
            if not is_shared(plan.buffers[tensor.buffer].place):
                self.bytes += plan.buffers[tensor.buffer].bytes
        self._plans.append(execution)
        return new

    def lagging(self, built: Built) -> list[Place]:
        """Copies of parameters of a plan that the updates of other plans do not write."""
        if not self._plans:
            return []
        own = [place for place in built.plan.sizes if is_of("copy", place)]
        return [place for place in own if place not in self._plans[0].plan.sizes]

    # ------------------------------------------------------------ content

    def has(self, key: Key) -> bool:
        """True if a plan has it."""
        return key in self._held

    def keys(self, *kinds: str) -> list[Key]:
        """Keys of the tensors of these kinds."""
        return [key for key in self._held if not isinstance(key, Cell) and key[0] in kinds]

    def shape(self, key: Key) -> tuple[int, ...]:
        """Its shape."""
        return self._held[key][1].shape

    def dtype(self, key: Key) -> str:
        """The type in which it is held."""
        return self._held[key][1].dtype

    def copy_to(self, key: Key, address: int) -> None:
        """Copy it, in PyTorch's order, to device memory, and wait until it is there."""
        execution, tensor = self._held[key]
        here = View(tensor.dtype, tensor.layout.strides(tensor.shape))
        there = View(tensor.dtype, Layout(tensor.dtype).strides(tensor.shape))
        kernel = strided_copy(here, there, tensor.shape)
        execution.gpu.launch(kernel, [execution.address(tensor), address])
        execution.gpu.synchronize()

    def read(self, key: Key) -> np.ndarray:
        """A copy of its content on the host, in PyTorch's order."""
        execution, tensor = self._held[key]
        return execution.read(tensor)

    def write(self, key: Key, array: np.ndarray | DeviceArray) -> None:
        """Give it the content of an array in PyTorch's order; `settle` follows."""
        execution, tensor = self._held[key]
        execution.write(tensor, array)

    def settle(self) -> None:
        """Refresh what follows from what was written, and wait until it is there."""
        for plan in self._plans:
            plan.renew_copies()
            plan.gpu.synchronize()

    def clear(self, kinds: Iterable[str]) -> None:
        """Set everything of these kinds to zero; `settle` follows."""
        wanted = set(kinds)
        for place, (owner, size) in self._places.items():
            region = owner.memory.place(place)
            if region is not None and any(is_of(role, place) for role in KEPT if role in wanted):
                owner.gpu.fill(region.address, size)
        for key in self.keys(*(wanted - set(KEPT))):
            owner, tensor = self._held[key]
            owner.gpu.fill(owner.address(tensor), tensor.layout.bytes(tensor.shape))

    def set_rate(self, group: str, rate: float, stream: int) -> None:
        """Enqueue on a stream the learning rate of the next iterations there."""
        if (found := self._held.get((RATE, group))) is not None:
            owner, tensor = found
            bits = int(np.float32(rate).view(np.uint32))
            owner.gpu.write_word(owner.address(tensor), bits, stream)

    # ------------------------------------------------------------ cells

    def cells(self, kind: str) -> list[Cell]:
        """The cells of a kind."""
        return [key for key in self._held if isinstance(key, Cell) and key.kind == kind]

    def write_cell(self, cell: Cell, content: np.ndarray) -> None:
        """Fill a cell."""
        execution, tensor = self._held[cell]
        execution.gpu.upload(execution.address(tensor), content.reshape(1).view(np.uint8))

    def read_cell(self, cell: Cell, dtype: np.dtype) -> np.ndarray:
        """The content of a cell."""
        execution, tensor = self._held[cell]
        return execution.gpu.download(execution.address(tensor), (1,), dtype).reshape(())
