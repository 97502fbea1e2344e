"""The memory of concatenations: where their parts are stored, and what is there already."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.layout_propagation import (
    before_views,
    read_through,
    seen_as,
    seen_first,
)
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.split_axes import Axis, Part, joined, rows_in_memory
from golow.lower.ir.graph import Ref
from golow.lower.ir.rewriting import result
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.plan.concatenation_placement import Home, homes

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Concatenations:
    """Concatenations of a builder's graph by name, as far as they have memory. What is in one of
    them is as long in use as the whole."""

    def __init__(self, build: Builder) -> None:
        self._build, self._current = build, build.current
        self._homes = homes(build.current.graph)  # of values that may be written there
        self._links = build.current.links
        self._made: dict[str, Folded] = {}
        self._placed: set[tuple[Home, str]] = set()
        for name, home in self._homes.items():
            build.current.put_into(name, home.whole)

    def range(self, name: str) -> Home | None:
        """Return the place of a concatenation in a later one of which it is a range."""
        home = self._home(name)
        return None if home is None or home.nested else home

    def _home(self, name: str) -> Home | None:
        home, constant = self._homes.get(name), self._current.is_constant
        if home is None or self._build.training.has_place(name):
            return None
        if constant(Ref(name=name)) and not constant(Ref(name=home.whole)):
            return None  # that memory is free between iterations
        return home

    def slot(self, size: int, like: Layout, home: Home) -> Folded:
        """Return the memory of a part that has this size along the axis. That of the concatenation
        is allocated for the first of its parts: in channels last as that one, or in the order in
        which it is read."""
        if home.whole not in self._made:
            self._made[home.whole] = self._nested(home, like) or self._new(home, like)
        whole = self._made[home.whole]
        axes, shape = list(whole.axes), list(self._shape(home.whole))
        step = axes[home.axis][0].step if axes[home.axis] else 1
        axes[home.axis] = (Part(size, step),) if size != 1 else ()
        shape[home.axis] = size
        offset = whole.tensor.offset + home.start * step * ITEM_BYTES[whole.tensor.dtype]
        flat = Layout(whole.tensor.dtype)
        memory = whole.tensor._replace(shape=(math.prod(shape),), layout=flat, offset=offset)
        return Folded(memory, tuple(axes))

    def place(self, name: str, shape: tuple[int, ...], like: Layout) -> Folded | None:
        """Return the memory of a value of which a view will be joined; None if none is, or if what
        is adjacent in its layout elsewhere would not do so there."""
        home = self._home(name)
        if home is None:
            return None
        order, last = seen_as(like, shape, home.views)
        found = before_views(self.slot(last[home.axis], order, home), home.views, shape)
        if found is None or (home.views and not _has_rows(found, like, shape)):
            return None
        return found

    def tensor(self, name: str, shape: tuple[int, ...], like: Layout) -> Tensor | None:
        """Return that memory as a tensor; None, too, if an axis has no single stride there."""
        view = self.place(name, shape, like)
        if view is None or view.strides is None:
            return None
        layout = layout_of(view.tensor.dtype, shape, view.strides)
        return view.tensor._replace(shape=shape, layout=layout)

    def is_placed(self, place: Home, part: Ref) -> bool:
        """True if an earlier concatenation has copied this part there; from now on one has."""
        known = (place, part.name) in self._placed
        self._placed.add((place, part.name))
        return known

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._current.value(Ref(name=name)).shape

    def _nested(self, home: Home, like: Layout) -> Folded | None:
        """The memory of a concatenation within a later one, if its parts can be written there."""
        own = self._homes.get(home.whole)
        if own is None or not own.nested:
            return None
        found = self.place(home.whole, self._shape(home.whole), Layout(like.dtype))
        return None if found is None or len(found.axes[home.axis]) > 1 else found

    def _new(self, home: Home, like: Layout) -> Folded:
        name, shape = home.whole, self._shape(home.whole)
        image = like.order == "channels_last"
        layout = Layout(like.dtype, "channels_last", shape[1]) if image else Layout(like.dtype)
        memory = self._build.memory.new(name, shape, layout)
        chain = read_through(self._current, name)
        if image or 0 in shape or not self._shape(chain.last):
            return folded(memory)  # the last is a number where losses are joined
        found = seen_first(memory, chain, self._order_of_rows(chain.last))
        fits = found is not None and len(found.axes[home.axis]) <= 1
        return found if found is not None and fits else folded(memory)

    def _order_of_rows(self, name: str) -> Axis | None:
        """The parts of all rows of a concatenation, if it is the gradient of a linear layer's
        result, in the order in which the layer's operand is stored: the gradient of the weight is a
        sum over the rows of both. None if that is the rows' own order."""
        for operand in self._summed_with(name):
            maker = self._links.maker.get(operand.name)
            if maker is None or maker >= self._current.position:
                continue
            view = self._build.values.folded(operand)
            width = self._shape(operand.name)[-1]
            if view.strides is None and rows_in_memory(view) == width:
                return joined(Part(part.size, part.step // width) for part in view.axes[0])
        return None

    def _summed_with(self, name: str) -> Iterator[Ref]:
        """The second operands of products that sum over the rows of a value."""
        width, waiting = self._shape(name)[-1], [name]
        while waiting:
            seen = waiting.pop()
            for reader in self._links.readers[seen]:
                node = self._links.nodes[reader]
                if Reshape.of(node) and self._shape(result(node))[-1:] == (width,):
                    waiting.append(result(node))
                turned = Permute.of(node)
                if turned is not None and turned.order == (1, 0):
                    yield from self._multiplied(result(node))

    def _multiplied(self, name: str) -> Iterator[Ref]:
        for reader in self._links.readers[name]:
            product = MatrixProduct.of(self._links.nodes[reader])
            if product is not None and product.a.name == name:
                yield product.b


def _has_rows(view: Folded, like: Layout, shape: tuple[int, ...]) -> bool:
    """True if what is adjacent in a layout does so in a view, too."""
    pairs = zip(shape, like.strides(shape), view.axes, strict=True)
    return all(axis[-1].step == 1 for size, step, axis in pairs if size > 1 and step == 1)
