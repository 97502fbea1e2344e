"""Tensors joined along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels.elements import View, strided_copy
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.concatenate import Concatenate

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def concatenate(build: Builder, arguments: Concatenate) -> None:
    """Copy each part to its place, in the layout of the first."""
    shape, axis = build.output().shape, arguments.axis
    first = build.tensor(arguments.parts[0])
    layout = Layout(first.dtype)
    if first.layout.order == "channels_last":
        layout = Layout(first.dtype, "channels_last", shape[1])
    result = build.new(build.output().name, shape, layout)
    target, start = layout.strides(shape), 0
    for part in arguments.parts:
        tensor = build.view(part)
        source = tensor.layout.strides(tensor.shape)
        build.kernel(
            strided_copy(
                View(tensor.dtype, source), View(first.dtype, target, start), tensor.shape
            ),
            [tensor],
            [result],
        )
        start += tensor.shape[axis] * target[axis]
    build.define(0, result)


def _refuse(arguments: Concatenate, question: Question) -> str:
    dtypes = {question.value(part).dtype for part in arguments.parts}
    if len(dtypes) > 1:
        return f"{question.node.op} of {' and '.join(sorted(dtypes))}"
    return ""


IMPLEMENTATIONS = (Implementation(Concatenate, concatenate, _refuse),)
