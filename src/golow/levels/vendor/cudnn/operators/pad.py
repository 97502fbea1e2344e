"""A tensor surrounded by a constant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.gathering import refuse_many_axes
from golow.levels.vendor.cudnn.kernels.pointwise import Operand, number, pointwise
from golow.levels.vendor.cudnn.kernels.strided import strided_copy
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_floating
from golow.lower.operators.pad import Pad

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def pad(build: Builder, arguments: Pad) -> None:
    """Fill the result with the constant, then copy x into it; negative padding cuts x."""
    tensor, shape = build.tensor(arguments.x), build.output().shape
    layout = Layout(tensor.dtype)
    result = build.new(build.output().name, shape, layout)
    fill = pointwise([number(arguments.value)], [Operand(tensor.dtype, "scalar")], [tensor.dtype],
                     result.elements)  # fmt: skip
    build.kernel(fill, [tensor], [result])
    inner = [max(0, -before) for before in arguments.before]
    outer = [max(0, before) for before in arguments.before]
    sizes = [
        min(old - i, new - o)
        for old, new, i, o in zip(tensor.shape, shape, inner, outer, strict=True)
    ]
    source, target = tensor.layout.strides(tensor.shape), layout.strides(shape)
    starts = [
        sum(index * stride for index, stride in zip(*pair, strict=True))
        for pair in ((inner, source), (outer, target))
    ]
    if math.prod(sizes):
        kernel = strided_copy(tensor.dtype, tensor.dtype, sizes, source, target, *starts)
        build.kernel(kernel, [tensor], [result])
    build.define(0, result)


def _refuse(arguments: Pad, question: Question) -> str:
    return not_floating(question, arguments.x) or refuse_many_axes(arguments, question)


IMPLEMENTATIONS = (Implementation(Pad, pad, _refuse),)
