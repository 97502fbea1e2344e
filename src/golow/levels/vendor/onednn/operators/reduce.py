"""Sums and means over axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn.arrays import of_arrays
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, REDUCTION_MEAN, REDUCTION_SUM, SRC
from golow.levels.vendor.onednn.library import Descriptor, number
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.reduce import Reduce

UFUNCS: dict[str, Any] = {
    "sum": np.add,
    "product": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


def reduce(build: Builder, arguments: Reduce) -> None:
    """oneDNN keeps the reduced axes with size 1; the result is row-major."""
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
    result = build.new(output.name, output.shape, target)
    build.call(primitive, {SRC: x}, {DST: result})
    build.define(0, result._replace(descriptor=Descriptor.plain(output.shape)))


def _with_numpy(build: Builder, arguments: Reduce) -> None:
    function, axes, keep = UFUNCS[arguments.function], arguments.axes, arguments.keep

    def run(x: Any, y: Any) -> None:
        y[...] = function.reduce(x, axis=axes, keepdims=keep)

    of_arrays(build, run, arguments.x)


def _refuse(arguments: Reduce, question: Question) -> str:
    return refuse_integers(arguments, question) if arguments.function == "mean" else ""


IMPLEMENTATIONS = (Implementation(Reduce, reduce, _refuse),)
