"""Where the values of the graph are stored, in which layouts and types, and the copies that their
readers need."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.buffers import UNDECIDED
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, dense, layout_of, same_memory
from golow.levels.direct.cudnn.shared_kernels.pointwise import Operand, pointwise
from golow.levels.direct.cudnn.steps.built_plan import KEPT, Tensor, is_aligned, is_dense
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.cudnn.steps.strided_copies import Copied, copy, copy_all, unfold
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import GraphInput, OutputKind, Ref
from golow.lower.operators.reshape import Reshape
from golow.lower.plan.plan import Place

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

# Places whose content a step changes where it is stored.
CHANGED: tuple[Place, ...] = ("state", "counter", KEPT)
# Outputs of the graph that steps write when all gradients are there.
AT_THE_END: tuple[OutputKind, ...] = (
    "parameter",
    "momentum",
    "square",
    "steps",
    "gradient_sum",
    "buffer",
    "clip_factor",
)


class Values:
    """The values of a builder's graph, each with its copies."""

    def __init__(self, build: Builder) -> None:
        self._build, self._current, self._memory = build, build.current, build.memory
        self._made: dict[str, list[Tensor]] = {}
        self._folded: dict[str, Folded] = {}  # not copied so far
        self._conversions: dict[tuple[str, str], Tensor] = {}  # copies of such views in other types
        self._made_at: dict[str, int] = {}  # the step after which a value's memory holds it
        self._private: set[str] = set()

    # ------------------------------------------------------------ for those who read them

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
        if reference.name not in self._made:
            return self.wanted(reference, self._layout_from_outside(reference))
        return self._made[reference.name][0]

    def _layout_from_outside(self, reference: Ref) -> Layout:
        value = self._current.value(reference)
        item = self._current.sources.get(reference.name)
        if item is not None and item.kind == "gradient_sum":
            return self._build.training.gradient_sum(item.target).layout
        image = len(value.shape) == 4 and (item is None or item.kind == "input")
        # The weight of a convolution of volumes; views of it are read as weights of images.
        image |= len(value.shape) == 5 and item is not None and item.kind == "parameter"
        image &= value.dtype == "float32"
        dtype = self._build.types.computed if value.dtype == "float32" else value.dtype
        if item is not None and item.kind not in ("input", "parameter"):
            inputs, dtype = self._build.inputs, value.dtype
            if item.kind == "buffer" and inputs.is_state(item):
                dtype = inputs.state_type(dtype)
        if item is not None and self._is_weight_of_lines(item):
            return Layout(dtype, "transposed")
        return Layout(dtype, "channels_last", value.shape[1]) if image else Layout(dtype)

    def _is_weight_of_lines(self, item: GraphInput) -> bool:
        """True for a parameter [K, C, R] that training changes and a convolution reads as the
        weight of images of one row: with the channels of a pixel side by side."""
        shape, links = item.value.shape, self._current.links
        if item.target not in self._build.training.group_of or len(shape) != 3:
            return False
        readers = (Reshape.of(links.nodes[place]) for place in links.readers[item.value.name])
        image = (*shape[:2], 1, shape[2])
        return any(view is not None and view.shape == image for view in readers)

    def wanted(self, reference: Ref, layout: Layout) -> Tensor:
        """Return a value in this layout, copied if needed (once for all its readers)."""
        name = reference.name
        view = self._folded.get(name)
        if view is not None and layout.order == "rows" and layout.dtype != view.tensor.dtype:
            return self._converted(reference, view, layout.dtype)
        self._unfold(reference, layout)
        made = self._made.setdefault(name, [])
        for tensor in made:
            if same_memory(tensor.shape, tensor.layout, layout) and is_aligned(tensor):
                return tensor._replace(layout=layout)
        new, inputs = None, self._build.inputs
        if not made or inputs.is_outside(name):
            new = inputs.bring_in(name, layout, exists=bool(made))
        if new is None:
            with self._build.loading.of(name):
                new = self.copied(made[0], layout)
        made.append(new)
        return new

    def rows(self, reference: Ref) -> Tensor:
        """Return a value in PyTorch's order, in the type in which it was made."""
        return self.wanted(reference, Layout(self.tensor(reference).dtype))

    def image(self, reference: Ref) -> Tensor:
        """Return a value [N, C, ...] as NHWC, in the type of activations."""
        channels = self._current.value(reference).shape[1]
        return self.wanted(reference, Layout(self._build.types.computed, "channels_last", channels))

    def channels(self, reference: Ref) -> int:
        """Return the channels in memory of a value [N, C, ...]: with padding if it was made so."""
        if reference.name in self._folded:
            return self._current.value(reference).shape[1]
        channels = self.view(reference).layout.channels
        return channels or self._current.value(reference).shape[1]

    def folded(self, reference: Ref) -> Folded:
        """Return a value as it was made, in the parts of its axes."""
        return self._folded.get(reference.name) or folded(self.view(reference))

    def dies(self, reference: Ref) -> bool:
        """True if the value's memory is free after the current node. A gradient elsewhere is copied
        to its place only when its group is updated."""
        if self._build.training.is_gradient(self._current.group(reference.name)):
            return False
        in_arena = self._memory.buffer(self.view(reference)).place == "arena"
        return in_arena and self._current.is_read_last(reference.name)

    # ------------------------------------------------------------ for the node that makes them

    def result(self, index: int, layout: Layout) -> Tensor:
        """Return memory for the current node's value of that index. For the gradient of a
        parameter this is the place that the plan keeps for it."""
        value, gradient = self._current.output(index), self._build.training.place(index)
        shape = value.shape
        if gradient is not None:
            own = gradient.layout if gradient.shape == shape else _seen_as(gradient, shape)
            if own is not None and same_memory(shape, own, layout):
                return gradient._replace(shape=shape, layout=layout)
        return self._memory.new(value.name, shape, layout)

    def define(self, index: int, tensor: Tensor, *, private: bool = False) -> None:
        """Make this tensor the current node's value of that index. private: its content is not the
        operator's, and only operators that know it read it."""
        value = self._current.node.outputs[index]
        if value is not None:
            self._made[value.name] = [tensor._replace(shape=value.shape)]
            if private:
                self._private.add(value.name)

    def end_node(self) -> None:
        """Note that all steps of the current node are there."""
        for value in self._current.node.outputs:
            if value is not None and value.name in self._made:
                self._made_at[value.name] = self._build.steps.last()

    def changed(self, names: Collection[str]) -> None:
        """Note that the last step gave the memory of these values the content that they stand
        for."""
        self._made_at |= dict.fromkeys(names, self._build.steps.last())

    def look(self, tensor: Tensor, strides: Sequence[int], start: int = 0) -> None:
        """Define the current node's value as a view of a tensor: its elements, with these strides
        from that element on. What training changes is copied instead, since a view may be
        read after the change."""
        shape = self._current.output().shape
        layout = layout_of(tensor.dtype, shape, strides)
        offset = tensor.offset + start * ITEM_BYTES[tensor.dtype]
        seen = Tensor(tensor.buffer, shape, layout, offset)
        if self._may_change(tensor):
            seen = self.copied(seen, dense(layout, shape))
        self.define(0, seen)

    def fold(self, view: Folded, index: int = 0) -> None:
        """Define the current node's value of that index as a view. It is copied if a reader needs
        one stride for each axis and it has none, and if training changes its memory."""
        value, strides = self._current.output(index), view.strides
        tensor = view.tensor
        if strides is not None:
            layout = layout_of(tensor.dtype, value.shape, strides)
            self.define(index, tensor._replace(shape=value.shape, layout=layout))
        else:
            self._folded[value.name] = view
        if self._may_change(tensor):
            made = self.view(Ref(name=value.name))
            if made.buffer == tensor.buffer:
                self.define(index, self.copied(made, dense(made.layout, made.shape)))

    def _may_change(self, tensor: Tensor) -> bool:
        """True if a step may write this memory while a view of it is still read."""
        place = self._memory.buffer(tensor).place
        return place in CHANGED and tensor.buffer not in self._build.inputs.unchanged

    def in_memory(self, ends: Mapping[tuple[str, str], Tensor]) -> dict[str, tuple[Tensor, int]]:
        """Return the values that nodes make, as they were made, with their steps; without private
        ones and those that are gone when loading is over. ends: the outputs of the graph. What a
        step of training changes is there at its end."""
        found = {
            name: (self._made[name][0], step)
            for name, step in self._made_at.items()
            if name not in self._private
        }
        end = len(self._build.steps.steps) - 1
        for item in self._current.graph.outputs:
            if item.kind in AT_THE_END and item.name not in self._current.sources:
                found[item.name] = ends[item.kind, item.target], end
        place = self._memory.buffer
        return {name: it for name, it in found.items() if place(it[0]).place != UNDECIDED}

    # ------------------------------------------------------------ copies

    def copied(self, tensor: Tensor, layout: Layout) -> Tensor:
        """Return a copy in another layout; it must not add padding."""
        copy = self._memory.new(self._memory.buffer(tensor).name, tensor.shape, layout)
        self.copy(tensor, copy)
        return copy

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Copy into a tensor of the same shape; the layouts may differ. Padding becomes zero."""
        if target.elements != source.elements and target.layout.order == "channels_last":
            zero = pointwise(["a"], [Operand("float32", "scalar")], [target.dtype], target.elements)
            self._build.steps.kernel(zero, [self._memory.number(0.0)], [target], "clear")
        shape = source.shape
        here, there = (View(t.dtype, t.layout.strides(shape)) for t in (source, target))
        copy(self._build, source, here, target, there, shape, "copy")

    def copy_each(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Copy into tensors of the same shapes, with as few launches as it takes."""
        joined: list[Copied] = []
        for source, target in pairs:
            if target.elements != source.elements:
                self.copy(source, target)
                continue
            views = (View(t.dtype, t.layout.strides(source.shape)) for t in (source, target))
            joined.append(Copied(source, next(views), target, next(views), source.shape))
        copy_all(self._build, joined, "copy")

    def replace(self, reference: Ref, copy: Folded) -> None:
        """Let a view that was not copied so far be this copy from now on."""
        self._folded[reference.name] = copy

    def _converted(self, reference: Ref, view: Folded, dtype: str) -> Tensor:
        """A copy of a view that has not been copied so far, in another type."""
        key = reference.name, dtype
        if key not in self._conversions:
            shape = self._current.value(reference).shape
            with self._build.loading.of(reference.name):
                copy = unfold(self._build, reference.name, view, shape, Layout(dtype))
            self._conversions[key] = copy
        return self._conversions[key]

    def _unfold(self, reference: Ref, wanted: Layout | None = None) -> None:
        """Copy a value that has been a view so far: as it is wanted if that is an image of its type
        without padding, else row-major."""
        view = self._folded.pop(reference.name, None)
        if view is not None:
            name, shape = reference.name, self._current.value(reference).shape
            channels = shape[1] if len(shape) > 1 else 0
            image = Layout(view.tensor.dtype, "channels_last", channels)
            with self._build.loading.of(name):
                layout = image if wanted == image else None
                self._made[name] = [unfold(self._build, name, view, shape, layout)]
                self._made_at[name] = self._build.steps.last()


def _seen_as(tensor: Tensor, shape: Sequence[int]) -> Layout | None:
    """The layout of a tensor as a view of another shape; None if steps through memory cannot say
    it."""
    view = folded(tensor).reshaped(tuple(shape))
    strides = None if view is None else view.strides
    return None if strides is None else layout_of(tensor.dtype, shape, strides)
