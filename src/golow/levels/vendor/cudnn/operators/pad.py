"""A tensor surrounded by a constant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.gathering import copy
from golow.levels.vendor.cudnn.kernels.elements import elements
from golow.levels.vendor.cudnn.layouts import Layout, dense
from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.literals import number
from golow.levels.vendor.views import View
from golow.lower.operators.pad import Pad

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def pad(build: Builder, arguments: Pad) -> None:
    """Fill the result with the constant, then copy x into it; negative padding cuts x. Images keep
    their channels side by side."""
    tensor, shape = build.view(arguments.x), build.output().shape
    image = dense(tensor.layout, tensor.shape).order == "channels_last"
    layout = Layout(tensor.dtype, "channels_last", shape[1]) if image else Layout(tensor.dtype)
    result = build.new(build.output().name, shape, layout)
    floating = build.output().dtype == "float32"
    value = number(arguments.value) if floating else f"{int(arguments.value)}LL"
    kind = "float32" if floating else "int64"
    fill = elements(value, [], View(tensor.dtype, (1,)), (result.elements,), kind)
    build.kernel(fill, [], [result])
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
        here = View(tensor.dtype, source, starts[0])
        copy(build, tensor, here, result, View(tensor.dtype, target, starts[1]), sizes)
    build.define(0, result)


IMPLEMENTATIONS = (Implementation(Pad, pad),)
