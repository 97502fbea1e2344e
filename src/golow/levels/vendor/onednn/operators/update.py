"""SGD with momentum and weight decay, over the parameters' own memory and in their layout."""

from __future__ import annotations

from ctypes import c_float

from golow.levels.vendor.onednn.builder import Builder, Operator, Tensor
from golow.levels.vendor.onednn.constants import BINARY_MUL, DST, MULTIPLE_SRC, SRC, SRC_1
from golow.levels.vendor.onednn.library import Descriptor, array
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
from golow.lower.graph import Node


def new_momentum(build: Builder, node: Node) -> None:
    """momentum <- factor momentum + gradient + weight_decay parameter."""
    momentum, gradient, parameter, factor, decay = node.arguments
    layout = build.tensor(parameter).layout
    old = build.wanted(momentum, layout)
    terms = [(_flat(old), factor), (_flat(build.wanted(gradient, layout)), 1.0)]
    if decay:
        terms.append((_flat(build.tensor(parameter)), decay))
    factors = (c_float * len(terms))(*(float(f) for _, f in terms))  # type: ignore[arg-type]
    layouts = [tensor.layout for tensor, _ in terms]
    primitive = Primitive(build.engine, "sum", layouts[0], len(terms), factors, array(layouts))
    reads = {MULTIPLE_SRC + index: tensor for index, (tensor, _) in enumerate(terms)}
    result = build.state_for(0) or build.new(build.output_name(), old.shape, layout)
    build.call(primitive, reads, {DST: _flat(result)})
    build.define(0, result)


def new_parameter(build: Builder, node: Node) -> None:
    """parameter <- parameter - learning_rate momentum.

    The learning rate stands in memory with its sign turned, so that it can change from step to
    step without a new primitive.
    """
    parameter, momentum, learning_rate = node.arguments
    old, moved = build.tensor(parameter), _flat(build.tensor(momentum))
    rate = build.plain(learning_rate)
    if build.state_for(0) is None:
        raise build.unsupported("a parameter that is still read after its update")
    primitive = Primitive(
        build.engine, "binary", BINARY_MUL, moved.layout, rate.layout, moved.layout,
        post_ops=[PostOp("sum")],
    )  # fmt: skip
    build.call(primitive, {SRC: moved, SRC_1: rate}, {DST: _flat(old)})
    build.define(0, old)


def _flat(tensor: Tensor) -> Tensor:
    """The tensor as one row of numbers, padding included: oneDNN's arithmetic is fast on rows,
    and on blocked weights a thousand times slower. Padding stays zero under both lines of SGD."""
    count = tensor.layout.bytes // 4
    return tensor._replace(shape=(count,), descriptor=Descriptor.plain((count,)))


OPERATORS: dict[str, Operator] = {
    "golow.new_momentum": new_momentum,
    "golow.new_parameter": new_parameter,
}
