"""A built plan in memory: its memory regions, and its calls bound to addresses."""

from __future__ import annotations

import ctypes
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from golow.levels.direct.bundle_arrays import STATE, Batch, Read
from golow.levels.direct.onednn.bindings.library import (
    Descriptor,
    Engine,
    Memory,
    OneDnnError,
    library,
)
from golow.levels.direct.onednn.run.compiled_calls import (
    Bound,
    Use,
    joined,
    of_kernel,
    of_primitive,
)
from golow.levels.direct.onednn.run.kernel_compilation import Workshop, pool
from golow.levels.direct.onednn.run.layout_copy import Reorder, primitive_arguments
from golow.levels.direct.onednn.run.shared_weights import Place, Region, SharedWeights
from golow.levels.direct.onednn.steps.built_plan import DTYPES, ArrayCall, Built, KernelCall, Tensor
from golow.levels.direct.onednn.steps.built_plan import Call as PlannedCall
from golow.records.workload import KEPT


class Execution:
    """A plan that is ready to run."""

    def __init__(
        self,
        built: Built,
        engine: Engine,
        read: Read,
        workshop: Workshop | None = None,
        *,
        arena: Region | None = None,
        weights: Execution | None = None,
        given: Collection[int] = (),
        elsewhere: Mapping[int, Place] = MappingProxyType({}),
    ) -> None:
        """read(kind, target) returns a parameter or buffer as an array.

        arena: the memory of an iteration, at least as large as the plan's; plans that never run at
        the same time may share it. weights: an execution of the same plan whose weights this one
        reads, too; it must live as long. given: buffers of outputs that are the caller's memory, as
        inputs are: `Iterations` states where. elsewhere: buffers that are not in its own memory.
        """
        self.built, self.engine = built, engine
        self._functions = workshop.functions(built.codes) if workshop is not None else {}
        self._pool = pool() if self._functions else None
        self.plan = built.plan
        self._shared: Mapping[int, Place] = elsewhere if weights is None else weights._shared
        self._regions = {"arena": arena or Region(self.plan.sizes["arena"])}
        for place in ("constant", "state"):
            new = Region(self.plan.sizes[place]) if weights is None else weights.region(place)
            self._regions[place] = new
        self._given = frozenset(given)
        self._inputs: dict[int, Region] = {}
        self._memories: list[Memory] = []
        self._arguments: list[Any] = []
        # Arguments with the address of an input, or of a given output, by its buffer.
        self._of_given: dict[int, list[tuple[Memory, int]]] = defaultdict(list)
        self._pointers_to_given: dict[int, list[tuple[Any, int, int]]] = defaultdict(list)
        if weights is None:
            self.load(read)
        self.bound = [
            self._bound(call)
            for call, step in zip(built.calls, self.plan.steps, strict=True)
            if not step.once
        ]
        self.player = None if workshop is None else workshop.player()
        self._calls = [one.call for one in self.bound]
        self._joined = joined(self.bound, self.player)
        self._main = [i for i, step in enumerate(self.plan.steps) if not step.once]

    def region(self, place: str) -> Region:
        """The memory of a place."""
        return self._regions[place]

    def borrow(self, places: Mapping[int, Place]) -> None:
        """Let buffers of weights be where the caller has them; `share` leaves them there."""
        self._shared = places

    def share(self, memory: SharedWeights) -> None:
        """Move the weights into a memory that other plans share. This one cannot run any more;
        those that are made with its weights afterwards can."""
        taken = memory.take(self.plan, self._regions["constant"], self._shared)
        self._shared = {**taken, **self._shared}
        self._regions["constant"] = Region(0)
        self.bound, self._calls, self._joined = [], [], []

    # ------------------------------------------------------------ running

    def run(self) -> None:
        """Run one iteration. Raises `OneDnnError` if a primitive fails."""
        for call in self._joined:
            if status := call():
                raise OneDnnError("dnnl_primitive_execute", status)

    def run_timed(self) -> list[tuple[int, int]]:
        """Time one iteration step by step; return positions of the steps and nanoseconds."""
        times = [time.perf_counter_ns()]
        for call in self._calls:
            if status := call():
                raise OneDnnError("dnnl_primitive_execute", status)
            times.append(time.perf_counter_ns())
        spent = (after - before for before, after in pairwise(times))
        return list(zip(self._main, spent, strict=True))

    def run_watched(self, watch: Callable[[int], None]) -> None:
        """Run one iteration; call ``watch`` with the position of each step after it ran."""
        for position, call in zip(self._main, self._calls, strict=True):
            if status := call():
                raise OneDnnError("dnnl_primitive_execute", status)
            watch(position)

    def pointing(self, batch: Batch) -> Callable[[], None]:
        """Return what lets iterations read these arrays from then on. They must stay where they
        are; what asks for their addresses takes a microsecond for each, so it is done once."""
        memories: list[tuple[Any, ctypes.c_void_p]] = []
        pointers: list[tuple[Any, int, int]] = []
        copies: list[tuple[np.ndarray, np.ndarray]] = []
        for key, array in batch.items():
            tensor, address = self.built.inputs.get(key), int(array.ctypes.data)
            if tensor is None:  # the graph does not read it
                continue
            for memory, offset in self._of_given[tensor.buffer]:
                memories.append((memory.handle, ctypes.c_void_p(address + offset)))
            for places, position, offset in self._pointers_to_given[tensor.buffer]:
                pointers.append((places, position, address + offset))
            if tensor.buffer in self._inputs:  # a NumPy step reads it
                copies.append((self.array(tensor), array))
        point_memory = library().dnnl_memory_set_data_handle

        def point() -> None:
            for handle, data in memories:
                if status := point_memory(handle, data):
                    raise OneDnnError("dnnl_memory_set_data_handle", status)
            for places, position, there in pointers:
                places[position] = there
            for place, array in copies:
                place[...] = array

        return point

    def uses(self, tensors: Sequence[Tensor | None]) -> Iterator[Use]:
        """Yield every place where a call has the address of an input or a given output. place: its
        number among the tensors, where None stands for one that is not used."""
        for place, tensor in enumerate(tensors):
            if tensor is not None:
                for memory, offset in self._of_given[tensor.buffer]:
                    yield Use(memory.handle.value or 0, place, offset, is_pointer=False)
                for pointers, position, offset in self._pointers_to_given[tensor.buffer]:
                    user = ctypes.addressof(pointers) + position * ctypes.sizeof(ctypes.c_void_p)
                    yield Use(user, place, offset, is_pointer=True)

    def copying_in(
        self, tensors: Sequence[Tensor | None]
    ) -> Callable[[ctypes.Array[ctypes.c_long]], None] | None:
        """Return what copies those inputs that steps of NumPy's read, from the addresses of the
        tensors; None if there are none. Each iteration needs it: their content may be another at
        the same address."""
        copied = [
            (place, self._inputs[tensor.buffer].address, tensor.bytes)
            for place, tensor in enumerate(tensors)
            if tensor is not None and tensor.buffer in self._inputs
        ]

        def copy(addresses: ctypes.Array[ctypes.c_long]) -> None:
            for place, target, size in copied:
                ctypes.memmove(target, addresses[place], size)

        return copy if copied else None

    # ------------------------------------------------------------ tensors in and out

    def array(self, tensor: Tensor) -> np.ndarray:
        """Return the memory of a row-major tensor as an array."""
        size = int(np.prod(tensor.shape))
        dtype = DTYPES[tensor.dtype]
        region, start = self._place(tensor.buffer)
        return np.frombuffer(region.map, dtype, size, start + tensor.offset).reshape(tensor.shape)

    def view(self, tensor: Tensor) -> np.ndarray:
        """Return a tensor's content, in memory that the next step may change."""
        plain = tensor.descriptor is None or tensor.layout.is_plain
        return self.array(tensor) if plain and tensor.flags is None else self.read(tensor)

    def read(self, tensor: Tensor) -> np.ndarray:
        """Return a copy of a tensor's content, in PyTorch's order."""
        return self.reader(tensor)()

    def reader(self, tensor: Tensor) -> Callable[[], np.ndarray]:
        """Return what does so at each call, for a tensor that is often read: making it takes longer
        than a small network."""
        if tensor.flags is not None:
            return partial(self._flagged_rows, tensor, tensor.flags)
        if tensor.descriptor is None or tensor.layout.is_plain:
            return lambda: self.array(tensor).copy()
        copy = self.copying(tensor)

        def read() -> np.ndarray:
            result: np.ndarray = np.empty(tensor.shape, DTYPES[tensor.dtype])
            copy(_address(result))
            return result

        return read

    def _flagged_rows(self, table: Tensor, flags: Tensor) -> np.ndarray:
        found = self.array(table).copy()
        found[~self.array(flags)] = 0
        return found

    def copying(self, tensor: Tensor) -> Callable[[int], object]:
        """Return what copies a tensor's content, in PyTorch's order, to an address."""
        source = self.address(tensor)
        if tensor.descriptor is None or tensor.layout.is_plain:
            return partial(_copy_bytes, source, tensor.bytes)
        return Reorder(self.engine, tensor.layout, source, _plain_like(tensor)).to

    def write(self, tensor: Tensor, array: np.ndarray) -> None:
        """Fill a tensor with an array in PyTorch's order."""
        if tensor.flags is not None:
            self.array(tensor.flags)[...] = True
        if tensor.descriptor is None or tensor.layout.is_plain:
            self.array(tensor)[...] = array.reshape(tensor.shape)
            return
        data: np.ndarray = np.ascontiguousarray(array, DTYPES[tensor.dtype])
        reorder = Reorder(self.engine, _plain_like(tensor), _address(data), tensor.layout)
        reorder.to(self.address(tensor))

    def forget(self) -> None:
        """Set all that the optimizer keeps to zero, in any layout."""
        for (kind, _), tensor in self.built.inputs.items():
            if kind in KEPT:
                buffer = self.plan.buffers[tensor.buffer]
                memory = self._regions[buffer.place].map
                np.frombuffer(memory, np.uint8, buffer.bytes, buffer.offset)[...] = 0

    def take_state(self, other: Execution) -> None:
        """Copy all that training changes from another plan of the same network."""
        for key, tensor in self.built.inputs.items():
            if key[0] in STATE:
                self.write(tensor, other.read(other.built.inputs[key]))

    # ------------------------------------------------------------ binding

    def address(self, tensor: Tensor) -> int:
        """Where a tensor's first element is; 0 for an input and a given output."""
        if self._is_given(tensor):
            return 0  # `pointing` sets it before the first iteration
        return self._place(tensor.buffer).address + tensor.offset

    def _is_given(self, tensor: Tensor) -> bool:
        place = self.plan.buffers[tensor.buffer].place
        return place == "input" or tensor.buffer in self._given

    def _place(self, index: int) -> Place:
        buffer = self.plan.buffers[index]
        if buffer.place == "input":
            return Place(self._input_region(index), 0)
        return self._shared.get(index) or Place(self._regions[buffer.place], buffer.offset)

    def _input_region(self, index: int) -> Region:
        if index not in self._inputs:
            self._inputs[index] = Region(self.plan.buffers[index].bytes)
        return self._inputs[index]

    def _bound(self, call: PlannedCall) -> Bound:
        if isinstance(call, KernelCall):
            return self._bound_kernel(call)
        if isinstance(call, ArrayCall):
            arrays = (self.array(tensor) for tensor in call.arguments)
            return Bound(partial(call.function, *arrays))
        memories = {}
        for argument, tensor in call.arguments.items():
            memory = Memory(self.engine, tensor.layout, self.address(tensor))
            memories[argument] = memory
            if self._is_given(tensor):
                self._of_given[tensor.buffer].append((memory, tensor.offset))
        self._memories += memories.values()
        arguments = primitive_arguments(memories)
        self._arguments.append(arguments)
        execute, stream = library().dnnl_primitive_execute, self.engine.stream.handle
        return of_primitive(execute, call.primitive.handle, stream, arguments)

    def _bound_kernel(self, call: KernelCall) -> Bound:
        count = len(call.arguments)
        pointers = (ctypes.c_void_p * (count + len(call.beside)))()
        for position, tensor in enumerate(call.arguments):
            pointers[position] = self.address(tensor)
            if self._is_given(tensor):
                pointer = (pointers, position, tensor.offset)
                self._pointers_to_given[tensor.buffer].append(pointer)
        for position, memory in enumerate(call.beside, count):
            pointers[position] = _address(memory)
        numbers = (ctypes.c_long * len(call.kernel.numbers))(*call.kernel.numbers)
        self._arguments += pointers, numbers
        assert self._pool is not None  # noqa: S101 - there is a function, so there is a pool
        return of_kernel(self._functions[call.kernel.code], pointers, numbers, self._pool)

    def load(self, read: Read, watch: Callable[[int], None] | None = None) -> None:
        """Fill what iterations do not change: step by step what is computed from weights, where
        each weight is read when it is first needed; then the constants that iterations read
        directly. It may be called again, with other weights. watch: is called with the position of
        each step after it ran."""
        sources = {t.buffer: (key, t) for key, t in self.built.inputs.items()}
        filled: set[int] = set()

        def fill(buffers: Iterable[int]) -> None:
            for index in buffers:
                if index in filled:
                    continue
                filled.add(index)
                if index in self.built.constants:
                    self._fill(index, self.built.constants[index])
                elif index in sources:
                    key, tensor = sources[index]
                    self.write(tensor, read(*key))

        kept = self._memories, self._arguments
        self._memories, self._arguments = [], []
        self._regions["once"] = Region(self.plan.sizes["once"])
        steps = zip(self.built.calls, self.plan.steps, strict=True)
        for position, (call, step) in enumerate(steps):
            if step.once:
                fill(operand.buffer for operand in step.reads)
                if status := self._bound(call).call():
                    raise OneDnnError("dnnl_primitive_execute", status)
                if watch is not None:
                    watch(position)
        places = [buffer.place for buffer in self.plan.buffers]
        fill(index for index in (*self.built.constants, *sources) if places[index] == "constant")
        del self._regions["once"]
        self._memories, self._arguments = kept

    def _fill(self, index: int, data: np.ndarray) -> None:
        region, start = self._place(index)
        np.frombuffer(region.map, np.float32, data.size, start)[...] = data.ravel()


def _copy_bytes(source: int, size: int, target: int) -> None:
    ctypes.memmove(target, source, size)


def _plain_like(tensor: Tensor) -> Descriptor:
    """Return a row-major layout with the axes of this one; grouped weights have one axis more."""
    return Descriptor.plain(tensor.layout.shape, tensor.layout.dtype)


def _address(array: np.ndarray) -> int:
    return int(array.ctypes.data)
