"""Where the values of the graph are stored, in which layouts, and the reorders that their readers
need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.buffers import UNDECIDED
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.reorders import reorder
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


class Values:
    """The values of a builder's graph, each with its copies in other layouts."""

    def __init__(self, build: Builder) -> None:
        self._build, self._current, self._memory = build, build.current, build.memory
        self._made: dict[str, list[Tensor]] = {}
        self._made_at: dict[str, int] = {}  # the step that wrote a value's memory
        self._private: set[str] = set()

    # ------------------------------------------------------------ for those who read them

    def tensor(self, reference: Ref) -> Tensor:
        """Return a value as it was made."""
        name = reference.name
        self._build.views.copy(name)
        if name not in self._made:
            item = self._current.sources[name]
            dtype = item.value.dtype
            computed = dtype in ("float32", "int8", "bfloat16")
            layout = Descriptor.plain(item.value.shape, dtype) if computed else None
            self._made[name] = [self._build.inputs.bring_in(item, layout)]
        return self._made[name][0]

    def wanted(self, reference: Ref, layout: Descriptor) -> Tensor:
        """Return a value in this layout, reordered if needed (once for all its readers).

        State that steps change takes the layout of its first reader.
        """
        name, inputs = reference.name, self._build.inputs
        item = self._current.sources.get(name)
        if name not in self._made and item is not None and inputs.is_state(item):
            self._made[name] = [inputs.bring_in(item, layout)]
        made = self.tensor(reference)
        for tensor in self._made[name]:
            if tensor.layout == layout:
                return tensor
        if len(made.layout.shape) == len(layout.shape):
            copy = self.reordered(made, layout)
        else:  # a weight with groups: [K, C, R, S] for the graph, [G, K/G, C, R, S] for oneDNN
            copy = self._regrouped(made, layout)
        self._made[name].append(copy)
        return copy

    def _regrouped(self, made: Tensor, layout: Descriptor) -> Tensor:
        if made.layout.is_plain:
            plain = Descriptor.plain(layout.shape, made.dtype)
            return self.reordered(made._replace(descriptor=plain), layout)
        copy = self.reordered(made, layout.reshaped(made.layout.shape))
        return copy._replace(descriptor=layout)

    def plain(self, reference: Ref) -> Tensor:
        """Return a value in row-major order."""
        tensor = self.tensor(reference)
        if tensor.descriptor is None:
            return tensor
        return self.wanted(reference, Descriptor.plain(tensor.shape, tensor.dtype))

    def layouts_made(self, shape: tuple[int, ...]) -> Iterator[Descriptor]:
        """Yield the layouts of the values of this shape, the latest first."""
        for first, *_ in reversed(self._made.values()):
            if first.shape == shape and first.descriptor is not None:
                yield first.descriptor

    def is_constant(self, reference: Ref) -> bool:
        """True if the value is the same in every iteration of a plan in inference, as far as the
        steps so far tell."""
        place = self._memory.buffer(self.tensor(reference)).place
        return place == UNDECIDED and not self._current.trains

    def is_known(self, name: str) -> bool:
        """True if a value of that name was kept."""
        return name in self._made

    def dies(self, reference: Ref) -> bool:
        """True if the value's memory is free after the current node."""
        in_arena = self._memory.buffer(self.tensor(reference)).place == "arena"
        return in_arena and self._current.is_read_last(reference.name)

    # ------------------------------------------------------------ for the node that makes them

    def in_place_or_new(self, reference: Ref, tensor: Tensor, index: int = 0) -> Tensor:
        """Return memory for a result in the tensor's layout: the argument's own if it dies here."""
        if self.dies(reference):
            return tensor
        name = self._current.output_name(index)
        return self._memory.new(name, tensor.shape, tensor.descriptor)

    def define(self, index: int, tensor: Tensor, *, private: bool = False) -> None:
        """Make this tensor the current node's value of that index. private: its content is not the
        operator's, and only operators that know it read it."""
        value = self._current.node.outputs[index]
        if value is not None:
            self.keep(value.name, tensor._replace(shape=value.shape), private=private)

    def keep(self, name: str, tensor: Tensor, *, private: bool = False) -> None:
        """Make this tensor the value of that name. private: as of `define`."""
        self._made[name] = [tensor]
        if private:
            self._private.add(name)
        self._made_at[name] = self._build.steps.written.get(tensor.buffer, -1)

    def made_at(self, name: str) -> int:
        """The position of the step in an iteration that makes the value; -1 if it is there when
        loading is over."""
        position = self._made_at.get(name, -1)
        return -1 if position >= 0 and self._build.steps.steps[position].once else position

    def in_memory(self) -> dict[str, tuple[Tensor, int]]:
        """Return the values that nodes make, as they were made, with their steps; without private
        ones, those that are gone when loading is over, and views of a batch."""
        place = self._memory.buffers.place
        names = self._made_at.keys() - self._private
        found = {name: (self._made[name][0], self.made_at(name)) for name in names}
        elsewhere = ("once", "input")
        return {name: it for name, it in found.items() if place(it[0].buffer) not in elsewhere}

    # ------------------------------------------------------------ copies

    def reordered(self, tensor: Tensor, layout: Descriptor) -> Tensor:
        """Return a copy in another layout."""
        name = self._memory.buffer(tensor).name
        copy = self._memory.new(name, tensor.shape, layout, tensor.dtype)
        reorder(self._build, tensor, copy)
        return copy

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy into a tensor of the same shape; the layouts may differ."""
        if source.descriptor is not None:
            reorder(self._build, source, target)
            return
        self._build.steps.array_call(copy_array, [source], [target])


def copy_array(read: np.ndarray, written: np.ndarray) -> None:
    """The copy of integers, which the library has no layouts for."""
    np.copyto(written, read)
