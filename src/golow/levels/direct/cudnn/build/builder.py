"""Turns a graph into steps on the GPU: where each value is stored, in which layout and type, and
which kernel or engine computes it. ``operators/`` has what each operation does."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from golow.levels.direct.cudnn.build.concatenation_memory import Wholes
from golow.levels.direct.cudnn.build.counters import counters
from golow.levels.direct.cudnn.build.current_node import CurrentNode
from golow.levels.direct.cudnn.build.step_list import StepList
from golow.levels.direct.cudnn.build.training_state import TrainingState, grouped
from golow.levels.direct.cudnn.build.updating import Updating
from golow.levels.direct.cudnn.kernels.counting import count
from golow.levels.direct.cudnn.kernels.fetch import fetch_image, fetch_rows
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import (
    Layout,
    dense,
    is_rows_with_gaps,
    layout_of,
    same_memory,
)
from golow.levels.direct.cudnn.problems.precision import Types
from golow.levels.direct.cudnn.steps.built_plan import (
    POSITION,
    Built,
    Cell,
    Fill,
    Tensor,
    is_aligned,
    is_dense,
)
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.cudnn.steps.strided_copies import copy, unfold
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.views import View
from golow.lower.analysis.liveness import gradient_places, share_memory, state_outputs
from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Ref, Value
from golow.lower.ir.operator import Operator, record_of
from golow.lower.plan.concatenation_placement import homes
from golow.lower.plan.memory_traffic import SCRATCH
from golow.lower.plan.plan import Buffer, Place, make_plan

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine, Engines, Operation

ALIGNMENT = 256  # bytes; what cuBLASLt requires of a workspace
CELL_BYTES = 12  # size of the largest small structure that kernels share
# Place of what depends on weights alone, until all steps are known.
UNDECIDED: Place = "once"


class Builder(StepList, CurrentNode):
    """Builds the steps of one graph, node by node."""

    def __init__(self, graph: Graph, engines: Engines, types: Types, batches: int) -> None:
        StepList.__init__(self)
        CurrentNode.__init__(self, graph)
        self.engines, self.types, self._batches = engines, types, batches
        self._constants: dict[str, Operator] = {}
        self._made: dict[str, Tensor] = {}
        self._values: dict[str, list[Tensor]] = {}
        self._folded: dict[str, Folded] = {}  # not copied so far
        self._buffers: list[Buffer] = []
        self._fills: list[Fill] = []
        self._cells: dict[Cell, Tensor] = {}
        self.updating = Updating()
        self.counters, self.counted = counters(graph), set[int]()
        self._inputs: dict[tuple[str, str], Tensor] = {}
        joined = homes(graph)
        for name, home in joined.items():
            share_memory(self._groups, self._last_reads, name, home.whole)
        self.wholes = Wholes(self, joined)
        self._state_of = state_outputs(graph)
        self._trained = {item.target for item in graph.outputs if item.kind == "gradient"}
        gradients = [item for item in graph.outputs if item.kind == "gradient"]
        self._gradients = {self._groups.get(item.name, item.name) for item in gradients}
        self._gradient_of = gradient_places(graph)
        kinds = {item.kind for item in graph.inputs}
        self.training = TrainingState(types, self.new, kinds, grouped(graph))
        self._ended: dict[tuple[str, str], Tensor] = {}

    def build(
        self, implemented: Mapping[str, Implementation], finish: Callable[[Builder], None]
    ) -> Built:
        """Build all steps; ``finish`` adds those at the end of a training step. Raises
        `Unsupported` if an operation has no engine or a size exceeds what its kernel takes."""
        for position, node in enumerate(self.graph.nodes):
            self.position, self.node = position, node
            try:
                with self.loading(*(value.name for value in node.outputs if value is not None)):
                    implemented[node.op].build(self, record_of(node))
            except ValueError as error:
                raise self.unsupported(f"{node.op}: {error}") from error
        self.node = msgspec.structs.replace(node, module="", absorbed=(), phase="update")
        outputs: dict[tuple[str, str], Tensor] = {
            (item.kind, item.target): self._ended.get((item.kind, item.target))
            or self._place_end(item)
            for item in self.graph.outputs
        }
        finish(self)
        kept = [t.buffer for key, t in outputs.items() if key[0] in ("output", "loss")]
        self._decide_places([*kept, *(tensor.buffer for tensor in self._made.values())])
        name, steps = self.graph.name, self._steps
        beside, within = self.training.beside, self.updating.within(self)
        return Built(
            plan=make_plan(name, steps, self._buffers, kept, ALIGNMENT, self._late, beside, within),
            calls=tuple(self._calls),
            fills=tuple(self._fills),
            copies=tuple(self.training.copies),
            inputs=self._inputs | self._state_inputs(),
            outputs=outputs,
            cells=self._cells,
            constants=self._constants,
            made=self._made,
        )

    # ------------------------------------------------------------ values

    def tensor(self, reference: Ref) -> Tensor:
        """Return a value as it was made, a view as a copy with its elements side by side."""
        made = self.view(reference)
        if is_dense(made):
            return made
        return self.wanted(reference, dense(made.layout, made.shape))

    def view(self, reference: Ref) -> Tensor:
        """Return a value as it was made, which may be a view with any strides; one from outside the
        graph in the computing type."""
        self._unfold(reference)
        if reference.name not in self._values:
            value = self._all_values[reference.name]
            item = self._sources.get(reference.name)
            image = len(value.shape) == 4 and (item is None or item.kind == "input")
            # The weight of a convolution of volumes; views of it are read as weights of images.
            image |= len(value.shape) == 5 and item is not None and item.kind == "parameter"
            image &= value.dtype == "float32"
            dtype = self.types.computed if value.dtype == "float32" else value.dtype
            if item is not None and item.kind not in ("input", "parameter"):
                dtype = value.dtype
            order = Layout(dtype, "channels_last", value.shape[1]) if image else Layout(dtype)
            return self.wanted(reference, order)
        return self._values[reference.name][0]

    def wanted(self, reference: Ref, layout: Layout) -> Tensor:
        """Return a value in this layout, copied if needed (once for all its readers)."""
        name = reference.name
        self._unfold(reference)
        made = self._values.setdefault(name, [])
        for tensor in made:
            if same_memory(tensor.shape, tensor.layout, layout) and is_aligned(tensor):
                return tensor._replace(layout=layout)
        new = self._bring_in(name, layout) if not made or self._is_outside(name) else None
        if new is None:
            with self.loading(name):
                new = self.copied(made[0], layout)
        made.append(new)
        return new

    def rows(self, reference: Ref) -> Tensor:
        """Return a value in PyTorch's order, in the type in which it was made."""
        return self.wanted(reference, Layout(self.tensor(reference).dtype))

    def image(self, reference: Ref) -> Tensor:
        """Return a value [N, C, ...] as NHWC, in the type of activations."""
        shape = self.value(reference).shape
        return self.wanted(reference, Layout(self.types.computed, "channels_last", shape[1]))

    def copied(self, tensor: Tensor, layout: Layout) -> Tensor:
        """Return a copy in another layout; it must not add padding."""
        copy = self.new(self._buffers[tensor.buffer].name, tensor.shape, layout)
        self.copy(tensor, copy)
        return copy

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy into a tensor of the same shape; the layouts may differ."""
        if target.elements != source.elements and target.layout.order == "channels_last":
            raise self.unsupported("a copy into padded channels")
        shape = source.shape
        here, there = (View(t.dtype, t.layout.strides(shape)) for t in (source, target))
        copy(self, source, here, target, there, shape, "copy")

    def new(
        self, name: str, shape: Sequence[int], layout: Layout, place: Place = "arena"
    ) -> Tensor:
        """Allocate memory for a value."""
        if self.once and place == "arena":
            place = UNDECIDED
        self._buffers.append(Buffer(name, layout.extent(shape) * ITEM_BYTES[layout.dtype], place))
        return Tensor(len(self._buffers) - 1, tuple(shape), layout)

    def bytes_of(self, tensor: Tensor) -> int:
        """Return how much of the tensor a step reads or writes: of all batches, one."""
        batches = self._batches if self._buffers[tensor.buffer].place == "input" else 1
        return super().bytes_of(tensor) // batches

    def scratch(self, elements: int, dtype: str = "float32") -> Tensor:
        """Allocate memory that only the current node uses."""
        return self.new(f"{self.node.name}{SCRATCH}", (elements,), Layout(dtype))

    def result(self, index: int, layout: Layout) -> Tensor:
        """Return memory for the current node's value of that index. For the gradient of a
        parameter this is the place that the plan keeps for it."""
        value, gradient = self.output(index), self.place(index)
        shape = value.shape
        if gradient is not None:
            flat = gradient.layout == layout and layout.order == "rows"
            if flat and math.prod(gradient.shape) == math.prod(shape):
                return gradient._replace(shape=shape)
            if gradient.shape == shape and same_memory(shape, gradient.layout, layout):
                return gradient._replace(layout=layout)
        return self.new(value.name, shape, layout)

    def place(self, index: int = 0) -> Tensor | None:
        """Return the place that the plan keeps for the current node's value of that index, if it is
        the gradient of a parameter."""
        target = self._gradient_of.get(self.output(index).name)
        return None if target is None else self._gradient(target)

    def look(self, reference: Ref, strides: Sequence[int], start: int = 0) -> None:
        """Define the current node's value as a view of another one: its elements, with these
        strides from that element on. What training changes is copied instead, since a view may be
        read after the change."""
        tensor, shape = self.view(reference), self.output().shape
        layout = layout_of(tensor.dtype, shape, strides)
        offset = tensor.offset + start * ITEM_BYTES[tensor.dtype]
        seen = Tensor(tensor.buffer, shape, layout, offset)
        if self._buffers[tensor.buffer].place in ("state", "counter"):
            seen = self.copied(seen, dense(layout, shape))
        self.define(0, seen)

    def folded(self, reference: Ref) -> Folded:
        """Return a value as it was made, in the parts of its axes."""
        return self._folded.get(reference.name) or folded(self.view(reference))

    def fold(self, view: Folded, index: int = 0) -> None:
        """Define the current node's value of that index as a view. It is copied if a reader needs
        one stride for each axis and it has none, and if training changes its memory."""
        value, strides = self.output(index), view.strides
        tensor = view.tensor
        if strides is not None:
            layout = layout_of(tensor.dtype, value.shape, strides)
            self.define(index, tensor._replace(shape=value.shape, layout=layout))
        else:
            self._folded[value.name] = view
        if self._buffers[tensor.buffer].place in ("state", "counter"):
            made = self.view(Ref(name=value.name))
            if made.buffer == tensor.buffer:
                self.define(index, self.copied(made, dense(made.layout, made.shape)))

    def replace(self, reference: Ref, copy: Folded) -> None:
        """Let a view that was not copied so far be this copy from now on."""
        self._folded[reference.name] = copy

    def _unfold(self, reference: Ref) -> None:
        view = self._folded.pop(reference.name, None)
        if view is not None:
            shape = self.value(reference).shape
            with self.loading(reference.name):
                self._values[reference.name] = [unfold(self, reference.name, view, shape)]

    def define(self, index: int, tensor: Tensor) -> None:
        """Make this tensor the current node's value of that index."""
        value = self.node.outputs[index]
        if value is not None:
            self._values[value.name] = [tensor._replace(shape=value.shape)]

    def dies(self, reference: Ref) -> bool:
        """Whether the value's memory is free after the current node. A gradient elsewhere is copied
        to its place only when its group is updated."""
        group = self._groups.get(reference.name, reference.name)
        if group in self._gradients:
            return False
        in_arena = self._buffers[self.view(reference).buffer].place == "arena"
        return in_arena and self._last_reads.get(group, -1) <= self.position

    def cell(self, cell: Cell) -> Tensor:
        """Return the memory of a small structure that steps share."""
        if cell not in self._cells:
            self._cells[cell] = self.new(str(cell), (CELL_BYTES,), Layout("uint8"), "state")
        return self._cells[cell]

    def is_gradient(self, name: str) -> bool:
        """Whether the value, or a view of it, is the gradient of a parameter."""
        return name in self._gradients

    def has_gradient(self, name: str) -> bool:
        """Whether the value lies where the plan keeps the gradient of a parameter."""
        return name in self._gradient_of

    def number(self, value: float) -> Tensor:
        """Return a float32 constant in GPU memory."""
        tensor = self.new(f"{value:g}", (), Layout("float32"), "constant")
        self._fills.append(Fill(value, tensor))
        return tensor

    def compute_when_loading(self, operator: Operator) -> None:
        """Compute the current node's value while loading: it depends only on weights, or on what
        steps make of them before."""
        self._constants[self.output().name] = operator
        for name in self.node.references():
            if not self._is_outside(name):
                self._made[name] = self.tensor(Ref(name=name))

    @contextmanager
    def loading(self, *names: str) -> Iterator[None]:
        """Steps that are added within run only when loading if these values are the same in every
        iteration."""
        before = self.once
        self.once = before or (bool(names) and self._same.issuperset(names))
        try:
            yield
        finally:
            self.once = before

    def _decide_places(self, kept: Sequence[int]) -> None:
        """Keep what iterations read, but not what only loading reads."""
        read = {o.buffer for step in self._steps if not step.once for o in step.reads}
        for index in read.union(kept):
            if self._buffers[index].place == UNDECIDED:
                self._buffers[index] = self._buffers[index]._replace(place="constant")

    def engine_for(self, operation: Operation) -> Engine:
        """Return the engine. Raises `Unsupported` if no library has one."""
        engine = self.engines.choose(operation)
        if engine is None:
            raise self.unsupported(f"no library has an engine for {self.node.op} of these shapes")
        return engine

    # ------------------------------------------------------------ the end of a training step

    def count(self, reference: Ref) -> None:
        """Increment an integer counter of the state at the end of the iteration."""
        tensor = self.state(reference)
        if tensor.buffer in self.counted:  # a layer that runs twice
            self.kernel(count(1), [tensor], [])
        self.counted.add(tensor.buffer)
        self.define(0, tensor)

    def place_gradients(self, targets: Collection[str]) -> None:
        """Put the gradients of these parameters where their update reads them."""
        for item in self.graph.outputs:
            if item.kind == "gradient" and item.target in targets:
                self._ended[(item.kind, item.target)] = self._place_end(item)

    def has_place(self, place: Place) -> bool:
        """Whether any buffer is in this place."""
        return any(buffer.place == place for buffer in self._buffers)

    @property
    def cells(self) -> dict[Cell, Tensor]:
        """The cells that exist so far."""
        return dict(self._cells)

    def learning_rate(self) -> Tensor:
        """The learning rate that the update reads."""
        return self._inputs[("learning_rate", "")]

    # ------------------------------------------------------------ what comes from outside

    def state(self, reference: Ref) -> Tensor:
        """Return a tensor that a step changes in place, such as running statistics."""
        return self.wanted(reference, Layout(self.value(reference).dtype))

    def _is_outside(self, name: str) -> bool:
        return name in self._sources or name in self._constants

    def _bring_in(self, name: str, layout: Layout) -> Tensor | None:
        """Allocate memory for a value from outside in this layout. None if the value exists in
        another layout and must be copied."""
        value = self._all_values[name]
        item = self._sources.get(name)
        if item is None or item.kind == "constant":
            return self._constant(value, layout)
        if item.kind in ("input", "target"):
            if layout.order == "transposed":  # batches lie in PyTorch's order
                rows = self.wanted(Ref(name=name), layout._replace(order="rows"))
                return self.copied(rows, layout)
            return self._fetch(item, layout)
        if item.kind == "parameter" and self.trains and item.target in self._trained:
            found = self.training.parameter(item.target, value, layout)
            if found is None:  # two layers share it and need different layouts
                found = self.copied(self.training.masters[item.target], layout)
            return found
        if item.kind in ("parameter", "buffer") and not (self.trains and item.kind == "buffer"):
            return self._constant(value, layout)
        if self._values[name]:
            return None
        place: Place = "counter" if name in self.counters.values() else "state"
        tensor = self.new(name, value.shape, Layout(value.dtype), place)
        self._inputs[(item.kind, item.target)] = tensor
        return tensor if tensor.layout == layout else None

    def _constant(self, value: Value, layout: Layout) -> Tensor:
        place = "constant" if self.trains else UNDECIDED
        tensor = self.new(value.name, value.shape, layout, place)
        self._fills.append(Fill(value.name, tensor))
        return tensor

    def _fetch(self, item: GraphInput, layout: Layout) -> Tensor:
        """Add a step that takes the current batch from all batches in memory."""
        value, result = item.value, self.new(item.value.name, item.value.shape, layout)
        if layout.order == "channels_last":
            images, channels, *height, width = value.shape
            sizes = (images, channels, math.prod(height), width, layout.channels)
            kernel = fetch_image(value.dtype, layout.dtype, *sizes)
        else:
            kernel = fetch_rows(value.dtype, layout.dtype, result.elements)
        self.kernel(kernel, self.batches(Ref(name=value.name)), [result], "fetch")
        return result

    def batches(self, reference: Ref) -> tuple[Tensor, Tensor]:
        """Return all batches of an input, as they lie in memory, and the current one's position."""
        return self._all_batches(self._sources[reference.name]), self.cell(POSITION)

    def _all_batches(self, item: GraphInput) -> Tensor:
        key, value = (item.kind, item.target), item.value
        if key not in self._inputs:
            shape = (self._batches, *value.shape)
            self._inputs[key] = self.new(value.name, shape, Layout(value.dtype), "input")
        return self._inputs[key]

    def _gradient(self, target: str) -> Tensor:
        value = next(i.value for i in self._sources.values() if i.target == target)
        return self.training.gradient(target, value)

    def _state_inputs(self) -> dict[tuple[str, str], Tensor]:
        state = self.training
        found = {("parameter", target): tensor for target, tensor in state.masters.items()}
        for kind, tensors in state.kept.items():
            found |= {(kind, target): tensor for target, tensor in tensors.items()}
        return found

    def _place_end(self, item: GraphOutput) -> Tensor:
        """Return where an output of the graph is; a gradient elsewhere is copied to its place."""
        if item.kind == "gradient":
            tensor, target = self.view(Ref(name=item.name)), self._gradient(item.target)
            if tensor.buffer != target.buffer:
                self.copy(tensor, target)
            return target
        if item.kind == "parameter":
            return self.training.masters[item.target]
        if item.kind in self.training.kept:
            return self.training.kept[item.kind][item.target]
        if item.kind == "buffer":
            return self._kept_buffer(item)
        made = self.view(Ref(name=item.name))
        own = self._buffers[made.buffer].place == "arena"
        if own and is_rows_with_gaps(made.shape, made.layout):
            return made  # a copy of a text model's logits takes longer than several of its layers
        return self.tensor(Ref(name=item.name))

    def _kept_buffer(self, item: GraphOutput) -> Tensor:
        """The state's own memory of a buffer; new content that lies elsewhere is copied there."""
        source = Ref(name=self._state_of[item.name])
        state, made = self.state(source), self.tensor(Ref(name=item.name))
        if made.buffer != state.buffer:
            self.copy(made, state)
        return state
