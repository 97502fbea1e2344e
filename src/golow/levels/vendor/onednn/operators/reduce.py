"""Sums and means over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn.arrays import of_arrays, result
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, REDUCTION_MEAN, REDUCTION_SUM, SRC
from golow.levels.vendor.onednn.kernels import WORTH_A_THREAD, rows
from golow.levels.vendor.onednn.kernels.columns import column_sums
from golow.levels.vendor.onednn.library import Descriptor, number
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.reduce import Reduce

FEW = 64  # rows

UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def reduce(build: Builder, arguments: Reduce) -> None:
    """oneDNN keeps the reduced axes with size 1; the result is row-major."""
    plain = build.tensor(arguments.x).descriptor
    generated = build.generates and (plain is None or plain.is_plain)
    if generated and (_over_rows(build, arguments) or _over_columns(build, arguments)):
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


def _over_rows(build: Builder, arguments: Reduce) -> bool:
    """Add a kernel if the last axes are reduced, which are rows; otherwise return False."""
    value, output = build.value(arguments.x), build.output()
    first = len(value.shape) - len(arguments.axes)
    trailing = arguments.axes == tuple(range(first, len(value.shape)))
    columns = math.prod(value.shape[first:])
    count = math.prod(output.shape)
    # One thread computes a row: few long ones of floats are better left to the library.
    few = output.dtype == "float32" and count < FEW and columns >= WORTH_A_THREAD
    if not trailing or not columns or few or arguments.function not in rows.REDUCED:
        return False
    x, made = build.plain(arguments.x), result(build)
    if count:
        kernel = rows.reduction(arguments.function, x.dtype, made.dtype, count, columns)
        build.kernel(kernel, [x], [made])
    build.define(0, made)
    return True


def _over_columns(build: Builder, arguments: Reduce) -> bool:
    """Add a kernel if adjacent axes before the last one are reduced; otherwise return False."""
    value, axes = build.value(arguments.x), arguments.axes
    known = arguments.function in ("sum", "mean") and value.dtype == build.output().dtype
    if not axes or not known or value.dtype != "float32":
        return False
    first, last = axes[0], axes[-1] + 1
    outer, count, columns = map(
        math.prod, (value.shape[:first], value.shape[first:last], value.shape[last:])
    )
    if axes != tuple(range(first, last)) or count < 2 or columns < 2 or not outer:
        return False
    x, made = build.plain(arguments.x), result(build)
    mean = arguments.function == "mean"
    build.kernel(column_sums(outer, count, columns, mean), [x], [made])
    build.define(0, made)
    return True


def _with_numpy(build: Builder, arguments: Reduce) -> None:
    function, axes, keep = UFUNCS[arguments.function], arguments.axes, arguments.keep

    def run(x: Any, y: Any) -> None:
        y[...] = function.reduce(x, axis=axes, keepdims=keep)

    of_arrays(build, run, arguments.x)


def _refuse(arguments: Reduce, question: Question) -> str:
    return refuse_integers(arguments, question) if arguments.function == "mean" else ""


IMPLEMENTATIONS = (Implementation(Reduce, reduce, _refuse),)
