"""A tensor whose elements are all the same number."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.shared_kernels.elements import elements
from golow.levels.direct.cudnn.shared_kernels.pointwise import Operand, pointwise
from golow.levels.direct.cudnn.steps.strided_copies import new_rows, whole
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.convolution import ConvolutionBackward
from golow.lower.operators.fill import Fill

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def fill(build: Builder, arguments: Fill) -> None:
    """A number in GPU memory, copied to every element if there are several. The gradient of a
    parameter without elements is nothing but its place."""
    if 0 in arguments.shape:
        dtype = build.types.computed if arguments.dtype == "float32" else arguments.dtype
        build.values.define(0, new_rows(build, dtype))
        return
    if arguments.dtype != "float32":
        result = new_rows(build, arguments.dtype)
        value = f"{int(arguments.value)}LL"
        build.steps.kernel(elements(value, [], whole(result), result.shape, "int64"), [], [result])
        build.values.define(0, result)
        return
    scalar = build.memory.number(arguments.value)
    if math.prod(arguments.shape) == 1:
        build.values.define(0, scalar)
        return
    if _is_only_a_shape(build):
        repeated = layout_of("float32", arguments.shape, (0,) * len(arguments.shape))
        build.values.define(0, scalar._replace(shape=arguments.shape, layout=repeated))
        return
    layout, operand = Layout(build.types.computed), Operand("float32", "scalar")
    result = build.memory.new(build.current.output().name, arguments.shape, layout)
    kernel = pointwise(["a"], [operand], [result.dtype], result.elements)
    build.steps.kernel(kernel, [scalar], [result])
    build.values.define(0, result)


def _is_only_a_shape(build: Builder) -> bool:
    """True if no step reads the elements: a transposed convolution is the gradient of a convolution
    with regard to its image, of which it needs the shape alone."""
    links, name = build.current.links, build.current.output().name
    layers = [ConvolutionBackward.of(links.nodes[place]) for place in links.readers[name]]
    return name not in links.returned and all(
        layer is not None
        and not layer.wanted[1]
        and name not in (layer.gradient.name, layer.weight.name)
        for layer in layers
    )


IMPLEMENTATIONS = (Implementation(Fill, fill),)
