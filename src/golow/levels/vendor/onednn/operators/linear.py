"""Linear layers and matrix products. A transposed matrix is a view; nothing is moved for it."""

from __future__ import annotations

import math

from golow.levels.vendor.onednn.builder import Builder, Operator, Tensor
from golow.levels.vendor.onednn.constants import (
    BIAS,
    DST,
    FORWARD_INFERENCE,
    POST_OP_STRIDE,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.onednn.operators.elementwise import post_op
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
from golow.lower.graph import Node, Ref


def linear(build: Builder, node: Node) -> None:
    """activation(x weight^T + bias + residual); leading dimensions of x count as rows."""
    x, weight, bias, residual, activation = node.arguments
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    shape = build.tensor_shape(weight)
    rows = math.prod(output.shape[:-1])
    source = build.plain(x)
    flat = source._replace(descriptor=Descriptor.plain((rows, shape[1])))
    target = Descriptor.plain((rows, shape[0]))
    result = build.new(output.name, output.shape, target)
    after, reads = post_op(activation), {SRC: flat}
    if isinstance(residual, Ref):
        added = build.plain(residual)._replace(descriptor=target)
        after = [PostOp("add", descriptor=target), *after]
        reads[POST_OP_STRIDE | SRC_1] = added
    if build.graph.mode == "infer":
        primitive = _inner_product(build, flat, shape, bias is not None, target, after)
        reads[WEIGHTS] = build.wanted(weight, primitive.descriptor(WEIGHTS))
        one = Descriptor.plain((shape[0],))
    else:
        # Row-major for good: forward and both gradients read it so, and it is never reordered.
        one = Descriptor.plain((1, shape[0]))
        given = build.wanted(weight, Descriptor.plain(shape))
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


def product(build: Builder, node: Node) -> None:
    """a b, for matrices; either may be a transposed view."""
    a, b = (build.tensor(argument) for argument in node.arguments[:2])
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    a, b = (_matrix(build, i, t) for i, t in zip(node.arguments, (a, b), strict=True))
    target = Descriptor.plain(output.shape)
    primitive = Primitive(build.engine, "matmul", a.layout, b.layout, None, target)
    result = build.new(output.name, output.shape, target)
    build.call(primitive, {SRC: a, WEIGHTS: b}, {DST: result})
    build.define(0, result)


def _matrix(build: Builder, argument: object, tensor: Tensor) -> Tensor:
    """The tensor as it is where its layout is without blocks, else row-major."""
    assert isinstance(argument, Ref)  # noqa: S101
    return tensor if not tensor.layout.blocks else build.plain(argument)


OPERATORS: dict[str, Operator] = {
    "golow.linear": linear,
    "aten.mm.default": product,
    "aten.bmm.default": product,
}
