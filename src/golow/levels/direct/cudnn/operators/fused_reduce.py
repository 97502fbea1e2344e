"""Sums and means of functions of elements as one generated kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.operators.fused_pointwise import inputs_of, statement
from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels.columns import COLUMNS, Sums, tiling
from golow.levels.direct.cudnn.shared_kernels.elements import VALUES
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import (
    WIDE,
    Statement,
    access_of,
    as_index,
    compute_of,
    definitions_of,
    input_name,
    macro,
    numbers_of,
    reach,
    read_of,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import approximate
from golow.levels.direct.cudnn.steps.sums import launch
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import Axes, View, merged_axes
from golow.lower.operators.fused_reduce import FusedReduce

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def fused_reduce(build: Builder, arguments: FusedReduce) -> None:
    """Computed in float32, and stored as what is added up would be, or exactly if it is a gradient
    or one number."""
    parts, value = list(arguments.parts), build.current.output()
    last = parts[-1].outputs[0]
    assert last is not None  # noqa: S101 - what is added up
    seen, views, values = inputs_of(build, arguments.inputs, parts, last.shape)
    statements = [statement(index, part, values) for index, part in enumerate(parts)]
    exact = build.training.is_gradient(value.name) or not value.shape
    dtype = "float32" if exact else values[last.name].stored
    result = build.values.result(0, Layout(dtype))
    mean = arguments.function == "mean"
    sums = sums_of(statements, views, dtype, last.shape, arguments.axes, mean)
    launch(build, sums, seen, [result])
    build.values.define(0, result)


def sums_of(
    statements: Sequence[Statement],
    inputs: Sequence[View],
    dtype: str,
    shape: Sequence[int],
    axes: Sequence[int],
    mean: bool,
) -> Sums:
    """Pointers: the inputs, seen at the indices of ``shape`` -> the sums of the last statement over
    the axes, or their means, row-major.

    Statements as in `shared_kernels.fused_pointwise.fused`.
    """
    kept, reduced, inner = _axes(shape, inputs, axes)
    every = _together(kept, reduced, inner)
    outer, rows, columns = (math.prod(part.sizes) for part in (kept, reduced, inner))
    adjacent = [v.dtype for v, steps in zip(inputs, inner.strides, strict=True) if steps[-1] == 1]
    tiles = tiling(outer, rows, columns, *(adjacent or [view.dtype for view in inputs]))
    names = [input_name(index) for index in range(len(inputs))]
    accesses = [
        access_of(view, steps, every, tiles.width)
        for view, steps in zip(inputs, every.strides, strict=True)
    ]
    index = np.uint32 if reach(inputs, every) < WIDE else np.uint64
    sizes = list(numbers_of(names, inputs, every))
    first, last = len(kept.sizes), len(every.sizes) - 1
    column = f"const Index i_{last} = share.column;"
    lines = (
        *definitions_of(statements, names, inputs, sizes, index, tiles.width),
        macro("OUTER", _indices("share.outer", 0, first)),
        macro("ROW", _indices("row", first, last)),
        macro("READ", [column, *read_of(names, inputs, accesses, every, len(names))]),
        macro("COMPUTE", compute_of(statements, names, accesses, (), every)),
    )
    scalars: tuple[np.generic, ...] = (
        np.int64(rows),
        np.int64(columns),
        np.int32(tiles.tiles),
        np.float32(1 / rows if mean else 1),
        *(as_index(index, number) for _, number in sizes),
    )
    name = f"fused_reduce<{C_TYPES[dtype]}, {tiles.threads}>"
    code = COLUMNS + VALUES + approximate("\n".join(lines), dtype) + "\n\n"
    return tiles.sums(FILE, name, scalars, outer=outer, code=code)


def _axes(
    shape: Sequence[int], inputs: Sequence[View], axes: Sequence[int]
) -> tuple[Axes, Axes, Axes]:
    """The fewest axes that stay, but for the last one; that are added up; and the last one that
    stays, if an input's elements are side by side there, otherwise one of a single element."""
    kept = _merged(shape, inputs, [axis for axis in range(len(shape)) if axis not in axes])
    reduced = _merged(shape, inputs, axes)
    if any(steps[-1] == 1 for steps in kept.strides):
        outer = Axes(kept.sizes[:-1], tuple(steps[:-1] for steps in kept.strides))
        return outer, reduced, Axes(kept.sizes[-1:], tuple(steps[-1:] for steps in kept.strides))
    return kept, reduced, Axes((1,), tuple((0,) for _ in inputs))


def _merged(shape: Sequence[int], inputs: Sequence[View], axes: Sequence[int]) -> Axes:
    """These axes alone, in the order of the shape, and joined where all inputs continue."""
    sizes = [shape[axis] for axis in axes]
    order = View("", tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes))))
    views = [view._replace(strides=tuple(view.strides[axis] for axis in axes)) for view in inputs]
    found = merged_axes(sizes, [order, *views], 0)
    return Axes(found.sizes, found.strides[1:])


def _together(*parts: Axes) -> Axes:
    sizes = tuple(size for part in parts for size in part.sizes)
    each = zip(*(part.strides for part in parts), strict=True)
    return Axes(sizes, tuple(tuple(step for steps in row for step in steps) for row in each))


def _indices(counter: str, first: int, last: int) -> Iterator[str]:
    """The indices of these axes from a counter, the innermost first."""
    if first == last:
        return
    yield f"Index rest_{first} = {counter};"
    for axis in reversed(range(first + 1, last)):
        yield f"const Index i_{axis} = rest_{first} % size_{axis}; rest_{first} /= size_{axis};"
    yield f"const Index i_{first} = rest_{first};"


IMPLEMENTATIONS = (Implementation(FusedReduce, fused_reduce),)
