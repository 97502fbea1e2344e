"""Values that are views of others, in the parts of their axes (``levels/direct/split_axes.py``). In
inference nothing is copied for them until something reads them as a tensor without gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from golow.levels.direct import split_axes
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.reorders import reorder
from golow.levels.direct.onednn.steps.strided_views import dense
from golow.levels.direct.split_axes import Part
from golow.lower.ir.rewriting import result
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder
    from golow.lower.ir.graph import Ref

ITEM_BYTES = 4  # of a float32
IMAGE = (0, 2, 3, 1)  # the axes of an image in channels last, the outermost first

Folded: TypeAlias = split_axes.Folded[Tensor]


class Views:
    """The views of a builder that were not copied so far."""

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._waiting: dict[str, Folded] = {}
        self._links = build.current.links

    def in_blocks(self, reference: Ref) -> bool:
        """True if the value is in blocks, which have no strides."""
        if reference.name in self._waiting:
            return False
        return bool(self._build.values.tensor(reference).layout.blocks)

    def of(self, reference: Ref) -> Folded:
        """Return a value as it was made; from blocks, which have no strides, row-major."""
        waiting = self._waiting.get(reference.name)
        if waiting is not None:
            return waiting
        tensor = self._build.values.tensor(reference)
        return folded(self._build.values.plain(reference) if tensor.layout.blocks else tensor)

    def as_it_lies(self, reference: Ref) -> Tensor:
        """Return a value for a kernel that follows strides: a view with gaps is not copied if its
        innermost elements are side by side."""
        waiting = self._waiting.get(reference.name)
        layout = None if waiting is None else strided(waiting)
        if waiting is None or layout is None or layout.strides[-1:] != (1,):
            return self._build.values.tensor(reference)
        return waiting.tensor._replace(descriptor=layout, shape=layout.shape)

    def define(self, view: Folded) -> None:
        """Make this view the current node's value. It is copied at once in training, and if it is
        a part of an input, where it has gaps or an axis needs several strides."""
        name, buffer = self._build.current.output_name(), self._build.memory.buffer(view.tensor)
        layout = strided(view)
        part = buffer.place == "input" and buffer.bytes != math.prod(shape_of(view)) * ITEM_BYTES
        if layout is not None and _without_gaps(view) and not part:
            self._build.values.define(0, view.tensor._replace(descriptor=layout))
            return
        self._waiting[name] = view
        if part or self._build.current.trains:
            self.copy(name)

    def seen_by_reader(self, name: str, view: Folded) -> Folded:
        """The view after the reshapes and permutations between a value and the node that reads its
        elements, as long as each has one reader."""
        while (reader := self._links.only_reader(name)) is not None:
            node = self._links.nodes[reader]
            operator = Reshape.of(node) or Permute.of(node)
            if operator is None:
                break
            if isinstance(operator, Permute):
                view = view.permuted(operator.order)
            else:
                found = view.reshaped(operator.shape)
                if found is None:
                    break
                view = found
            name = result(node)
        return view

    def copy(self, name: str) -> None:
        """Copy the view of this name, if it waits: with its axes in the same order in memory. If an
        axis needs several strides, an image stays in channels last, anything else is row-major."""
        view = self._waiting.pop(name, None)
        if view is None:
            return
        build, shape = self._build, shape_of(view)
        layout = strided(view)
        if layout is not None:
            target = made = dense(shape, layout.strides)
        else:
            order = IMAGE if _is_channels_last(view) else tuple(range(len(shape)))
            layout, target = _of_parts(view), _of_parts(_in_order(view, order))
            made = Descriptor.ordered(shape, order)
        copy = build.memory.new(name, shape, target)
        source = view.tensor._replace(descriptor=layout)
        reorder(build, source, copy, "slice" if target is made else "reorder")
        build.values.keep(name, copy._replace(descriptor=made))


def folded(tensor: Tensor) -> Folded:
    """The tensor, which has no blocks, as a view of itself."""
    steps = zip(tensor.layout.shape, tensor.layout.strides, strict=True)
    found = [(Part(size, step),) if size != 1 else () for size, step in steps]
    return Folded(tensor, tuple(found[: len(tensor.shape)]))


def shape_of(view: Folded) -> tuple[int, ...]:
    """The sizes of the view's axes."""
    return tuple(math.prod(part.size for part in axis) for axis in view.axes)


def strided(view: Folded) -> Descriptor | None:
    """The view's layout; None if an axis needs several strides."""
    strides = view.strides
    if strides is None:
        return None
    return Descriptor.strided(shape_of(view), strides).settled()


def sliced(view: Folded, axis: int, start: int, size: int) -> Folded | None:
    """A range of an axis; None if the axis is joined from parts, and the range divides one of the
    inner parts."""
    first, *inner = view.axes[axis] or (Part(1, 0),)
    each = math.prod(part.size for part in inner)
    if start % each or size % each:
        return None
    offset = view.tensor.offset + start // each * first.step * ITEM_BYTES
    outer = () if size == each else (Part(size // each, first.step),)
    axes = (*view.axes[:axis], (*outer, *inner), *view.axes[axis + 1 :])
    return Folded(view.tensor._replace(offset=offset), axes)


def _without_gaps(view: Folded) -> bool:
    """True if the view's elements follow one another in memory, in any order."""
    step = 1
    for part in sorted(view.parts, key=lambda part: part.step):
        if part.step != step:
            return False
        step *= part.size
    return True


def _is_channels_last(view: Folded) -> bool:
    """True if it is an image whose channels are adjacent, pixel by pixel."""
    steps = [min((part.step for part in axis), default=0) for axis in view.axes]
    return len(steps) == len(IMAGE) and 0 not in steps and steps[1] == min(steps)


def _in_order(view: Folded, order: Sequence[int]) -> Folded:
    """The axes and parts as they would be stored without gaps, the first axis of the order
    outermost."""
    axes, step = list(view.axes), 1
    for axis in reversed(order):
        parts: list[Part] = []
        for part in reversed(axes[axis]):
            parts.insert(0, Part(part.size, step))
            step *= part.size
        axes[axis] = tuple(parts)
    return Folded(view.tensor, tuple(axes))


def _of_parts(view: Folded) -> Descriptor:
    """The layout with an axis for every part."""
    parts = view.parts
    sizes, steps = [part.size for part in parts], [part.step for part in parts]
    return Descriptor.strided(sizes, steps)
