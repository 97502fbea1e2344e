"""Values from outside the graph: batches, weights, and the state that training changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels.fetch_inputs import fetch_image, fetch_rows
from golow.levels.direct.cudnn.steps.built_plan import KEPT, POSITION, Tensor
from golow.lower.analysis.liveness import state_outputs
from golow.lower.ir.graph import GraphInput, Ref
from golow.lower.plan.plan import Place

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Inputs:
    """batches: how many are in memory. given: types in which inputs are there, by target, where
    these are not the graph's. tensors: all batches of each input and the state outside
    `TrainingState`, by kind and target, as far as something reads them. unchanged: the buffers of
    that state that no step writes."""

    def __init__(self, build: Builder, batches: int, given: Mapping[str, str]) -> None:
        self._build, self._current, self._batches = build, build.current, batches
        self._given = given
        self.tensors: dict[tuple[str, str], Tensor] = {}
        self.unchanged: set[int] = set()
        self._changed = frozenset(state_outputs(build.current.graph).values())

    def is_state(self, item: GraphInput) -> bool:
        """True if a step may change this buffer."""
        return self._current.trains or item.value.name in self._changed

    def is_outside(self, name: str) -> bool:
        """True if no step makes the value."""
        return name in self._current.sources or name in self._build.loading.constants

    def state(self, reference: Ref) -> Tensor:
        """Return a tensor that a step changes in place, such as running statistics."""
        dtype = self.state_type(self._current.value(reference).dtype)
        return self._build.values.wanted(reference, Layout(dtype))

    def state_type(self, dtype: str) -> str:
        """Return the type in which a buffer is kept: in inference, numbers are activations."""
        inference = not self._current.trains
        return self._build.types.computed if inference and dtype == "float32" else dtype

    def batches(self, reference: Ref) -> tuple[Tensor, Tensor]:
        """Return all batches of an input, as they are in memory, and the current one's position."""
        item = self._current.sources[reference.name]
        return self._all_batches(item), self._build.memory.cell(POSITION)

    def dtype(self, reference: Ref) -> str:
        """Return the type in which an input is in memory."""
        item = self._current.sources[reference.name]
        own = item.value.dtype
        return self._given.get(item.target, own) if item.kind == "input" else own

    def bring_in(self, name: str, layout: Layout, exists: bool) -> Tensor | None:
        """Allocate memory for a value from outside in this layout. None if state exists in another
        layout and must be copied."""
        build, current = self._build, self._current
        value, item = current.value(Ref(name=name)), current.sources.get(name)
        if item is None or item.kind == "constant":
            return build.memory.constant(value, layout)
        if item.kind in ("input", "target"):
            if layout.order == "transposed":  # batches are in PyTorch's order
                rows = build.values.wanted(Ref(name=name), layout._replace(order="rows"))
                return build.values.copied(rows, layout)
            return self._fetch(item, layout)
        if item.kind == "parameter" and item.target in build.training.group_of:
            found = build.training.parameter(item.target, value, layout)
            if found is None:  # two layers share it and need different layouts
                found = build.values.copied(build.training.masters[item.target], layout)
            return found
        if item.kind == "gradient_sum":
            total = build.training.gradient_sum(item.target)
            return total if total.layout == layout else build.values.copied(total, layout)
        if item.kind == "parameter" or (item.kind == "buffer" and not self.is_state(item)):
            return build.memory.constant(value, layout)
        return None if exists else self._new_state(item, layout)

    def _new_state(self, item: GraphInput, layout: Layout) -> Tensor | None:
        """Memory for a piece of state, in PyTorch's order; None if that is not the layout."""
        value = item.value
        place: Place = "state" if self._current.trains else KEPT
        if self._build.counters.is_counter(value.name):
            place = "counter"
        own = Layout(self.state_type(value.dtype))
        tensor = self._build.memory.new(value.name, value.shape, own, place)
        self.tensors[(item.kind, item.target)] = tensor
        if value.name not in self._changed:
            self.unchanged.add(tensor.buffer)
        return tensor if tensor.layout == layout else None

    def _fetch(self, item: GraphInput, layout: Layout) -> Tensor:
        """Add a step that takes the current batch from all batches in memory."""
        value = item.value
        result = self._build.memory.new(value.name, value.shape, layout)
        batches, position = self.batches(Ref(name=value.name))
        if layout.order == "channels_last":
            images, channels, *height, width = value.shape
            sizes = (images, channels, math.prod(height), width, layout.channels)
            kernel = fetch_image(batches.dtype, layout.dtype, *sizes)
        else:
            kernel = fetch_rows(batches.dtype, layout.dtype, result.elements)
        self._build.steps.kernel(kernel, (batches, position), [result], "fetch")
        return result

    def _all_batches(self, item: GraphInput) -> Tensor:
        key, value = (item.kind, item.target), item.value
        if key not in self.tensors:
            shape = (self._batches, *value.shape)
            layout = Layout(self.dtype(Ref(name=value.name)))
            self.tensors[key] = self._build.memory.new(value.name, shape, layout, "input")
        return self.tensors[key]
