"""Sums and means over axes."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import DST, REDUCTION_MEAN, REDUCTION_SUM, SRC
from golow.levels.vendor.onednn.library import Descriptor, number
from golow.levels.vendor.onednn.primitive import Primitive
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.reduce import Reduce


def reduce(build: Builder, arguments: Reduce) -> None:
    """oneDNN keeps the reduced axes with size 1; the result is row-major."""
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


IMPLEMENTATIONS = (Implementation(Reduce, reduce, refuse_integers),)
