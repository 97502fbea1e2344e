"""The memory of concatenations: where their parts lie, and what lies there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.folding import Folded, folded
from golow.levels.vendor.cudnn.kernels import ITEM_BYTES
from golow.levels.vendor.cudnn.layouts import Layout, layout_of
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Ref
from golow.lower.operators.permute import Permute
from golow.lower.placing import Home
from golow.lower.ranges import View

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


class Wholes:
    """Concatenations of a builder's graph by name, as far as they have memory. homes: of values
    that may be written there."""

    def __init__(self, build: Builder, homes: Mapping[str, Home]) -> None:
        self._build, self._homes = build, homes
        self._made: dict[str, Tensor] = {}
        self._placed: set[tuple[Home, str]] = set()

    def home(self, name: str) -> Home | None:
        """Return the place of a value in the memory of a concatenation, if it has one."""
        home, constant = self._homes.get(name), self._build.is_constant
        if home is None or self._build.has_gradient(name):
            return None
        if constant(Ref(name=name)) and not constant(Ref(name=home.whole)):
            return None  # that memory is free between iterations
        return home

    def slot(self, shape: Sequence[int], like: Layout, home: Home) -> Tensor:
        """Return the memory of a part. That of the concatenation is allocated for the first of its
        parts, with its axes in the order in which that one lies."""
        if home.whole not in self._made:
            whole = self._build.value(Ref(name=home.whole))
            layout = _in_order(whole.shape, shape, like)
            self._made[home.whole] = self._build.new(home.whole, whole.shape, layout)
        tensor = self._made[home.whole]
        strides = tensor.layout.strides(tensor.shape)
        offset = home.start * strides[home.axis] * ITEM_BYTES[tensor.dtype]
        seen = layout_of(tensor.dtype, shape, strides)
        return Tensor(tensor.buffer, tuple(shape), seen, tensor.offset + offset)

    def place(self, name: str, shape: tuple[int, ...], like: Layout) -> Tensor | None:
        """Return the memory of a value of which a view will be joined; None if none is, if no
        strides say where the value lies, or if its innermost axis has gaps there. like: how it
        would lie elsewhere, without gaps."""
        home = self.home(name)
        if home is None:
            return None
        shapes = [shape]
        elsewhere: Folded | None = folded(Tensor(0, shape, like))
        for view in home.views:
            shapes.append(_shape_after(view, shapes[-1]))
            elsewhere = None if elsewhere is None else _seen(elsewhere, view)
        strides = None if elsewhere is None else elsewhere.strides
        dtype, part = like.dtype, shapes[-1]
        order = Layout(dtype) if strides is None else layout_of(dtype, part, strides)
        slot = self.slot(part, order, home)
        found: Folded | None = folded(slot)
        for view, before in zip(reversed(home.views), reversed(shapes[:-1]), strict=True):
            found = None if found is None else _seen_before(found, view, before)
        strides = None if found is None else found.strides
        if strides is None or (home.views and not _has_rows(like, strides, shape)):
            return None
        return slot._replace(shape=shape, layout=layout_of(slot.dtype, shape, strides))

    def is_placed(self, place: Home, part: Ref) -> bool:
        """Whether an earlier concatenation has copied this part there; from now on one has."""
        known = (place, part.name) in self._placed
        self._placed.add((place, part.name))
        return known


def _has_rows(like: Layout, strides: Sequence[int], shape: tuple[int, ...]) -> bool:
    """Whether what lies side by side in a layout does so with these strides, too."""
    pairs = zip(shape, like.strides(shape), strides, strict=True)
    return all(step == 1 for size, wanted, step in pairs if size > 1 and wanted == 1)


def _in_order(whole: tuple[int, ...], part: Sequence[int], like: Layout) -> Layout:
    """The layout without gaps of a concatenation in which its axes have the order of a part's."""
    if like.order == "channels_last":
        return Layout(like.dtype, "channels_last", whole[1])
    if like.order != "strided":
        return Layout(like.dtype)
    steps, found, step = like.strides(part), [0] * len(whole), 1
    for axis in sorted(range(len(whole)), key=lambda axis: (steps[axis], -axis)):
        found[axis] = step
        step *= whole[axis]
    return layout_of(like.dtype, whole, found)


def _shape_after(view: View, shape: tuple[int, ...]) -> tuple[int, ...]:
    if isinstance(view, Permute):
        return tuple(shape[axis] for axis in view.order)
    return tuple(view.shape)


def _seen(tensor: Folded, view: View) -> Folded | None:
    """A view of a tensor, in parts."""
    if isinstance(view, Permute):
        return tensor.permuted(view.order)
    return tensor.reshaped(view.shape)


def _seen_before(seen: Folded, view: View, shape: tuple[int, ...]) -> Folded | None:
    """The tensor of which this is what the view shows. shape: the tensor's."""
    if isinstance(view, Permute):
        return seen.permuted([view.order.index(axis) for axis in range(len(shape))])
    return seen.reshaped(shape)
