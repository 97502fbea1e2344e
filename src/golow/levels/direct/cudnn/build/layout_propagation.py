"""Layout propagation: stores a value in the order in which its consumers read it, through views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from golow.levels.direct.cudnn.problems.layouts import Layout, dense, layout_of
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.node import CurrentNode
from golow.levels.direct.split_axes import Axis, Part, rows_in_memory
from golow.lower.analysis.ranges import View, shape_after
from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import record_of
from golow.lower.ir.rewriting import result
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.operators.linear import Linear
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.rms_norm import RmsNorm


class Chain(NamedTuple):
    """A value's shape, the views of which each alone reads the one before, and the last one's name
    (the value's own, without views)."""

    shape: tuple[int, ...]
    views: tuple[View, ...]
    last: str


def read_through(current: CurrentNode, name: str) -> Chain:
    """Return the reshapes and permutations after a value that leave its last axis the last one, as
    long as one node alone reads each of them."""
    shape, views = current.value(Ref(name=name)).shape, list[View]()
    while (reader := current.links.only_reader(name)) is not None:
        view = record_of(current.graph.nodes[reader])
        if isinstance(view, Permute) and view.order[-1:] != (len(view.order) - 1,):
            break
        if not isinstance(view, Reshape | Permute):
            break
        views.append(view)
        name = result(current.graph.nodes[reader])
    return Chain(shape, tuple(views), name)


def seen_first(memory: Tensor, chain: Chain, rows: Axis | None = None) -> Folded | None:
    """Memory as the first value of a chain sees it if the last one sees it in order: row-major, or
    with all of its rows in the order of these parts. None if no parts of axes report it."""
    last = chain.shape
    for view in chain.views:
        last = shape_after(view, last)
    width = last[-1]
    found: Folded | None = folded(memory._replace(shape=(math.prod(last) // width, width)))
    if rows is not None and found is not None:
        outer = tuple(Part(part.size, part.step * width) for part in rows)
        found = Folded(found.tensor, (outer, found.axes[1]))
    found = None if found is None else found.reshaped(last)
    return None if found is None else before_views(found, chain.views, chain.shape)


def copied_in_order(current: CurrentNode, name: str, layout: Layout) -> Chain | None:
    """Return the views through which a layer or a norm alone reads a value, if it would copy what
    is stored in this layout, since the rows are in another order; otherwise None."""
    chain = read_through(current, name)
    reader = current.links.only_reader(chain.last)
    record = None if reader is None else record_of(current.graph.nodes[reader])
    takes_rows = isinstance(record, Linear | LayerNorm | RmsNorm) and record.x.name == chain.last
    if not chain.views or not takes_rows:
        return None
    seen, shape = through_views(layout, chain.shape, chain.views)
    if seen is None:
        return chain
    in_order = seen.axes == folded(Tensor(0, shape, Layout(layout.dtype))).axes
    any_order = isinstance(record, Linear) and record.residual is None
    return None if in_order or (any_order and rows_in_memory(seen) == shape[-1]) else chain


def before_views(seen: Folded, views: Sequence[View], shape: tuple[int, ...]) -> Folded | None:
    """The tensor of this shape of which the last of these views is what is seen; None if no parts
    of axes report it."""
    shapes = [shape]
    for view in views:
        shapes.append(shape_after(view, shapes[-1]))
    found: Folded | None = seen
    for view, before in zip(reversed(views), reversed(shapes[:-1]), strict=True):
        if found is None:
            return None
        if isinstance(view, Permute):
            found = found.permuted([view.order.index(axis) for axis in range(len(before))])
        else:
            found = found.reshaped(before)
    return found


def through_views(
    like: Layout, shape: tuple[int, ...], views: Sequence[View]
) -> tuple[Folded | None, tuple[int, ...]]:
    """The value of that shape, stored so, as the last of these views shows it, and its shape there;
    None if no parts of axes report it."""
    found: Folded | None = folded(Tensor(0, shape, like))
    for view in views:
        shape = shape_after(view, shape)
        if found is not None and isinstance(view, Permute):
            found = found.permuted(view.order)
        elif found is not None:
            found = found.reshaped(shape)
    return found, shape


def seen_as(
    like: Layout, shape: tuple[int, ...], views: Sequence[View]
) -> tuple[Layout, tuple[int, ...]]:
    """The layout and the shape in which the last of these views shows a value of that shape that is
    stored so: a dense layout, of an image whose channels are adjacent with its channels last."""
    if not views:
        return like, shape
    found, shape = through_views(like, shape, views)
    strides = None if found is None else found.strides
    if strides is None:
        return Layout(like.dtype), shape
    return dense(layout_of(like.dtype, shape, strides), shape), shape
