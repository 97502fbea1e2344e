"""SGD with momentum and weight decay, in the parameters' own memory and layout."""

from __future__ import annotations

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import BINARY_MUL, DST, MULTIPLE_SRC, SRC, SRC_1
from golow.levels.vendor.onednn.library import Descriptor, array, numbers
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
from golow.levels.vendor.onednn.steps import Tensor
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.sgd_update import SgdUpdate


def sgd_update(build: Builder, arguments: SgdUpdate) -> None:
    """Add a step for the momentum, and one for the parameter, which reads it."""
    moved = _new_momentum(build, arguments)
    build.define(0, moved)
    build.define(1, _new_parameter(build, arguments, moved))


def _new_momentum(build: Builder, arguments: SgdUpdate) -> Tensor:
    """momentum <- factor momentum + gradient + weight_decay parameter."""
    parameter = build.tensor(arguments.parameter)
    layout = parameter.layout
    old = build.wanted(arguments.momentum, layout)
    terms = [_flat(old), _flat(build.wanted(arguments.gradient, layout))]
    factors = [arguments.factor, 1.0]
    if arguments.weight_decay:
        terms.append(_flat(parameter))
        factors.append(arguments.weight_decay)
    layouts = [tensor.layout for tensor in terms]
    primitive = Primitive(
        build.engine, "sum", layouts[0], len(terms), numbers(factors), array(layouts)
    )
    reads = {MULTIPLE_SRC + index: tensor for index, tensor in enumerate(terms)}
    result = build.state_for(0) or build.new(build.output_name(0), old.shape, layout)
    build.call(primitive, reads, {DST: _flat(result)}, "new_momentum")
    return result


def _new_parameter(build: Builder, arguments: SgdUpdate, momentum: Tensor) -> Tensor:
    """parameter <- parameter - learning_rate momentum; in a copy if the old value is still read.

    The learning rate is stored with its sign reversed, so that it can change from step to step
    without a new primitive.
    """
    moved, rate = _flat(momentum), build.plain(arguments.learning_rate)
    old = build.tensor(arguments.parameter)
    result = build.state_for(1) or build.reordered(old, old.layout)
    primitive = Primitive(
        build.engine, "binary", BINARY_MUL, moved.layout, rate.layout, moved.layout,
        post_ops=[PostOp("sum")],
    )  # fmt: skip
    build.call(primitive, {SRC: moved, SRC_1: rate}, {DST: _flat(result)}, "new_parameter")
    return result


def _flat(tensor: Tensor) -> Tensor:
    """View the tensor as one row of numbers, including padding. oneDNN's arithmetic is fast on rows
    and a thousand times slower on blocked weights. Padding stays zero in both steps of SGD."""
    count = tensor.layout.bytes // 4
    return tensor._replace(shape=(count,), descriptor=Descriptor.plain((count,)))


IMPLEMENTATIONS = (Implementation(SgdUpdate, sgd_update, refuse_integers),)
