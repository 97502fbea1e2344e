"""Sorted elements, and places of extremes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import lines
from golow.levels.direct.cudnn.steps.strided_copies import (
    axis_last,
    copy,
    new_rows,
    turned_back,
    whole,
)
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.sort import ArgReduce, Sort

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder
    from golow.levels.direct.cudnn.steps.built_plan import Tensor


def sort(build: Builder, arguments: Sort) -> None:
    """Along the last axis; another one is moved there and back by copies."""
    x = axis_last(build, build.values.tensor(arguments.x), arguments.axis)
    length, name = x.shape[-1], build.current.name
    is_last = arguments.axis == len(x.shape) - 1
    tensors = [
        new_rows(build, dtype, index)
        if is_last and build.current.is_read(index)
        else build.memory.new(f"{name}.{what}", x.shape, Layout(dtype))
        for index, (what, dtype) in enumerate((("values", x.dtype), ("places", "int64")))
    ]
    kernel = lines.sort(x.dtype, math.prod(x.shape) // length, length, arguments.descending)
    build.steps.kernel(kernel, [x], tensors)
    for index, tensor in enumerate(tensors):
        if build.current.is_read(index):
            build.values.define(
                index, tensor if is_last else _back(build, tensor, arguments.axis, index)
            )


def _back(build: Builder, tensor: Tensor, axis: int, index: int) -> Tensor:
    """A copy of a result of that index whose last axis is back at its place."""
    result = new_rows(build, tensor.dtype, index)
    view = turned_back(tensor, axis)
    copy(build, tensor, view, result, whole(result), result.shape, "turn")
    return result


def place(build: Builder, arguments: ArgReduce) -> None:
    """A block looks at each line."""
    x = axis_last(build, build.values.tensor(arguments.x), arguments.axis)
    result = new_rows(build, "int64")
    length = x.shape[-1]
    kernel = lines.place(x.dtype, math.prod(x.shape) // length, length, arguments.function)
    build.steps.kernel(kernel, [x], [result])
    build.values.define(0, result)


IMPLEMENTATIONS = (
    Implementation(Sort, sort),
    Implementation(ArgReduce, place),
)
