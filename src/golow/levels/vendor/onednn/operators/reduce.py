"""Sums and means over axes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn.arrays import of_arrays
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, REDUCTION_MEAN, REDUCTION_SUM, SRC
from golow.levels.vendor.onednn.kernels import WORTH_A_THREAD
from golow.levels.vendor.onednn.kernels import columns as columns_kernels
from golow.levels.vendor.onednn.kernels import rows as rows_kernels
from golow.levels.vendor.onednn.library import Descriptor, number
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.onednn.seen import dense, row_major
from golow.levels.vendor.onednn.steps import Tensor
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.reduce import Reduce

FEW = 64  # rows

UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


class Reduction(NamedTuple):
    """A value [outer, rows, columns] in memory, whose rows are reduced, and how the result lies."""

    x: Tensor
    outer: int
    rows: int
    columns: int
    strides: tuple[int, ...]


def reduce(build: Builder, arguments: Reduce) -> None:
    """By a generated kernel, where the reduced axes are neighbours in memory. oneDNN keeps the
    reduced axes with size 1; its result is row-major."""
    if build.generates and _with_kernel(build, arguments):
        return
    if arguments.function not in ("sum", "mean") or build.output().dtype != "float32":
        _with_numpy(build, arguments)
        return
    x, output = build.tensor(arguments.x), build.output()
    shape = tuple(1 if i in arguments.axes else n for i, n in enumerate(x.shape))
    target = Descriptor.plain(shape)
    if shape == x.shape:
        # A copy, because the builder cannot know that this operation may be a view.
        primitive = Primitive(build.engine, "reorder", x.layout, target)
    else:
        algorithm = REDUCTION_MEAN if arguments.function == "mean" else REDUCTION_SUM
        primitive = Primitive(
            build.engine, "reduction", algorithm, x.layout, target, number(0.0), number(0.0)
        )
    made = build.new(output.name, output.shape, target)
    build.call(primitive, {SRC: x}, {DST: made})
    build.define(0, made._replace(descriptor=Descriptor.plain(output.shape)))


def _with_kernel(build: Builder, arguments: Reduce) -> bool:
    """Add a kernel and return True, if there is one for this."""
    found, output, function = _as_it_lies(build, arguments), build.output(), arguments.function
    if found is None or not found.rows:
        return False
    outer, rows, columns = found.outer, found.rows, found.columns
    if columns == 1:
        # One thread computes a row: few long ones of floats are better left to the library.
        few = output.dtype == "float32" and outer < FEW and rows >= WORTH_A_THREAD
        if few or function not in rows_kernels.REDUCED:
            return False
        kernel = rows_kernels.reduction(function, found.x.dtype, output.dtype, outer, rows)
    else:
        floats = found.x.dtype == output.dtype == "float32"
        if not floats or function not in columns_kernels.REDUCED or rows < 2:
            return False
        kernel = columns_kernels.reduction(function, outer, rows, columns)
    layout = None
    if output.dtype == "float32":
        layout = Descriptor.strided(output.shape, found.strides).settled()
    made = build.new(output.name, output.shape, layout, output.dtype)
    if outer * columns:
        build.kernel(kernel, [found.x], [made])
    build.define(0, made)
    return True


def _as_it_lies(build: Builder, arguments: Reduce) -> Reduction | None:
    """The value in the order of its axes in memory; None if it lies in blocks or has gaps, or if
    axes are reduced that are no neighbours there."""
    x, axes = build.tensor(arguments.x), arguments.axes
    strides = row_major(x.shape)
    if x.descriptor is not None:
        if x.descriptor.blocks or x.descriptor != dense(x.shape, x.descriptor.strides):
            return None
        strides = x.descriptor.strides
    order = sorted(range(len(x.shape)), key=lambda axis: (-strides[axis], axis))
    places = [place for place, axis in enumerate(order) if axis in axes]
    if not places or places != list(range(places[0], places[-1] + 1)):
        return None
    sizes = [x.shape[axis] for axis in order]
    first, last = places[0], places[-1] + 1
    parts = (math.prod(sizes[:first]), math.prod(sizes[first:last]), math.prod(sizes[last:]))
    kept, step = dict.fromkeys(axes, 1), 1
    for axis in reversed(order):
        if axis not in axes:
            kept[axis] = step
            step *= x.shape[axis]
    wanted = (
        range(len(x.shape)) if arguments.keep else (a for a in range(len(x.shape)) if a not in axes)
    )
    return Reduction(x, *parts, tuple(kept[axis] for axis in wanted))


def _with_numpy(build: Builder, arguments: Reduce) -> None:
    function, axes, keep = UFUNCS[arguments.function], arguments.axes, arguments.keep

    def run(x: Any, y: Any) -> None:
        y[...] = function.reduce(x, axis=axes, keepdims=keep)

    of_arrays(build, run, arguments.x)


def _refuse(arguments: Reduce, question: Question) -> str:
    return refuse_integers(arguments, question) if arguments.function == "mean" else ""


IMPLEMENTATIONS = (Implementation(Reduce, reduce, _refuse),)
