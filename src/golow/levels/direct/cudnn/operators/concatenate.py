"""Tensors joined along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.kernel_indices import divided
from golow.levels.direct.cudnn.problems.layouts import Layout, dense, layout_of
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.cudnn.steps.strided_copies import Copied, copy_all
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import Ref
from golow.lower.operators.concatenate import Concatenate
from golow.lower.plan.concatenation_placement import Home

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def concatenate(build: Builder, arguments: Concatenate) -> None:
    """Copy the parts to their places, but for those that are there: they were written there, or an
    earlier concatenation of the same parts has copied them. In the layout of the first part, or
    with its rows in the order in which a product with the whole is summed."""
    name, shape, axis = build.current.output().name, build.current.output().shape, arguments.axis
    home = build.concatenations.range(name) or Home(name, axis, 0)
    like, start = _layout(build, arguments.parts), home.start
    waiting: list[Copied] = []
    for part in arguments.parts:
        view, size = build.values.folded(part), build.current.value(part).shape[axis]
        place = Home(home.whole, axis, start)
        slot = build.concatenations.slot(size, like, place)
        if not _lies_in(view, slot) and not build.concatenations.is_placed(place, part):
            waiting.append(_copied(build, part, slot))
        start += size
    copy_all(build, waiting)
    build.values.fold(build.concatenations.slot(shape[axis], like, home))


def _layout(build: Builder, parts: Sequence[Ref]) -> Layout:
    """The first part's, without gaps; of one that is not a number repeated, if there is one."""
    views = [(build.values.folded(part), build.current.value(part).shape) for part in parts]
    wide = [pair for pair in views if all(part.step for part in pair[0].parts)]
    view, shape = (wide or views)[0]
    dtype, strides = view.tensor.dtype, view.strides
    return Layout(dtype) if strides is None else dense(layout_of(dtype, shape, strides), shape)


def _lies_in(view: Folded, slot: Folded) -> bool:
    """True if a part was written where it is joined."""
    here, there = view.tensor, slot.tensor
    return (here.buffer, here.offset) == (there.buffer, there.offset)


def _copied(build: Builder, part: Ref, slot: Folded) -> Copied:
    """A copy of a part, at indices at which it and its place have strides."""
    view, shape = build.values.folded(part), build.current.value(part).shape
    indices = divided(shape, {"from": view, "to": slot})
    if indices is None:
        view = folded(build.values.rows(part))
        indices = divided(shape, {"from": view, "to": slot})
    assert indices is not None  # noqa: S101 - whole axes can be divided in any way
    source = View(view.tensor.dtype, indices.strides_of("from"))
    target = View(slot.tensor.dtype, indices.strides_of("to"))
    return Copied(view.tensor, source, slot.tensor, target, indices.sizes)


def _refuse(arguments: Concatenate, question: Question) -> str:
    dtypes = {question.value(part).dtype for part in arguments.parts}
    if len(dtypes) > 1:
        return f"{question.node.op} of {' and '.join(sorted(dtypes))}"
    return ""


IMPLEMENTATIONS = (Implementation(Concatenate, concatenate, _refuse),)
