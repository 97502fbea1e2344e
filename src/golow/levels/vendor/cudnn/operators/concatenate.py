"""Tensors joined along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.gathering import copy, whole
from golow.levels.vendor.cudnn.layouts import dense
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.concatenate import Concatenate
from golow.lower.placing import Home

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def concatenate(build: Builder, arguments: Concatenate) -> None:
    """Copy each part to its place, unless it lies there: it was written there, or an earlier
    concatenation of the same parts has copied it. In the layout of the first part."""
    name, shape, axis = build.output().name, build.output().shape, arguments.axis
    home = build.home(name) or Home(name, axis, 0)
    first = build.view(arguments.parts[0])
    like, start = dense(first.layout, first.shape), home.start
    for part in arguments.parts:
        tensor = build.view(part)
        place = Home(home.whole, axis, start)
        slot = build.slot(tensor.shape, like, place)
        lies_there = (tensor.buffer, tensor.offset) == (slot.buffer, slot.offset)
        if not lies_there and not build.is_placed(place, part):
            copy(build, tensor, whole(tensor), slot, whole(slot), tensor.shape)
        start += tensor.shape[axis]
    build.define(0, build.slot(shape, like, home))


def _refuse(arguments: Concatenate, question: Question) -> str:
    dtypes = {question.value(part).dtype for part in arguments.parts}
    if len(dtypes) > 1:
        return f"{question.node.op} of {' and '.join(sorted(dtypes))}"
    return ""


IMPLEMENTATIONS = (Implementation(Concatenate, concatenate, _refuse),)
