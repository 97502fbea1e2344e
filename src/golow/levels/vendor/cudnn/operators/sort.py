"""Sorted elements, and places of extremes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.gathering import axis_last, copy, new_rows, turned_back, whole
from golow.levels.vendor.cudnn.kernels import lines
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.implementation import Implementation
from golow.lower.operators.sort import ArgReduce, Sort

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def sort(build: Builder, arguments: Sort) -> None:
    """Along the last axis; another one is moved there and back by copies."""
    x = axis_last(build, build.tensor(arguments.x), arguments.axis)
    length = x.shape[-1]
    values = build.new(f"{build.node.name}.values", x.shape, Layout(x.dtype))
    places = build.new(f"{build.node.name}.places", x.shape, Layout("int64"))
    kernel = lines.sort(x.dtype, math.prod(x.shape) // length, length, arguments.descending)
    build.kernel(kernel, [x], [values, places])
    for index, tensor in enumerate((values, places)):
        if build.is_read(index):
            result = new_rows(build, tensor.dtype, index)
            view = turned_back(tensor, arguments.axis)
            copy(build, tensor, view, result, whole(result), result.shape, "turn")
            build.define(index, result)


def place(build: Builder, arguments: ArgReduce) -> None:
    """A block looks at each line."""
    x = axis_last(build, build.tensor(arguments.x), arguments.axis)
    result = new_rows(build, "int64")
    length = x.shape[-1]
    kernel = lines.place(x.dtype, math.prod(x.shape) // length, length, arguments.function)
    build.kernel(kernel, [x], [result])
    build.define(0, result)


IMPLEMENTATIONS = (
    Implementation(Sort, sort),
    Implementation(ArgReduce, place),
)
