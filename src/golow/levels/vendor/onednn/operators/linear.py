"""A linear layer with bias, residual and activation fused. A transposed weight is a view, so
nothing is copied for it."""

from __future__ import annotations

import math

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import (
    BIAS,
    DST,
    FORWARD_INFERENCE,
    POST_OP_STRIDE,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.vendor.onednn.eltwise import post_ops
from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
from golow.levels.vendor.onednn.refusing import without_algorithm
from golow.levels.vendor.onednn.steps import Tensor
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.linear import Linear


def linear(build: Builder, arguments: Linear) -> None:
    """activation(x weight^T + bias + residual); leading dimensions of x count as rows."""
    output, shape = build.output(), build.value(arguments.weight).shape
    rows = math.prod(output.shape[:-1])
    x = build.plain(arguments.x)
    flat = x._replace(descriptor=Descriptor.plain((rows, shape[1])))
    target = Descriptor.plain((rows, shape[0]))
    result = build.new(output.name, output.shape, target)
    after, reads = post_ops(arguments.activation), {SRC: flat}
    if arguments.residual is not None:
        added = build.plain(arguments.residual)._replace(descriptor=target)
        after = [PostOp("add", descriptor=target), *after]
        reads[POST_OP_STRIDE | SRC_1] = added
    bias = arguments.bias
    if build.graph.mode == "infer":
        primitive = _inner_product(build, flat, shape, bias is not None, target, after)
        reads[WEIGHTS] = build.wanted(arguments.weight, primitive.descriptor(WEIGHTS))
        one = Descriptor.plain((shape[0],))
    else:
        # Always row-major: forward and both gradients read it so, and it is never reordered.
        one = Descriptor.plain((1, shape[0]))
        given = build.wanted(arguments.weight, Descriptor.plain(shape))
        turned = given._replace(descriptor=given.layout.permuted((1, 0)))
        primitive = Primitive(
            build.engine, "matmul", flat.layout, turned.layout, one if bias is not None else None,
            target, post_ops=after,
        )  # fmt: skip
        reads[WEIGHTS] = turned
    if bias is not None:
        reads[BIAS] = build.wanted(bias, Descriptor.plain((shape[0],)))._replace(descriptor=one)
    build.call(primitive, reads, {DST: result})
    build.define(0, result._replace(descriptor=Descriptor.plain(output.shape)))


def _inner_product(
    build: Builder, x: Tensor, shape: tuple[int, ...], bias: bool, target: Descriptor,
    after: list[PostOp],
) -> Primitive:  # fmt: skip
    weights, one = Descriptor.tagged(shape), Descriptor.plain((shape[0],))
    return Primitive(
        build.engine, "inner_product_forward", FORWARD_INFERENCE, x.layout, weights,
        one if bias else None, target, post_ops=after,
    )  # fmt: skip


def _refuse(arguments: Linear, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or without_algorithm(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(Linear, linear, _refuse),)
