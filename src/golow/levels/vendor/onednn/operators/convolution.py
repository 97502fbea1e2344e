"""Convolution forward and backward, with bias, residual and activation fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from golow.levels.vendor.onednn.builder import Builder, Operator, Tensor
from golow.levels.vendor.onednn.constants import (
    ANY,
    BIAS,
    CONVOLUTION_DIRECT,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    POST_OP_STRIDE,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.vendor.onednn.library import Descriptor, channel_block, dims
from golow.levels.vendor.onednn.operators.elementwise import post_op
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
from golow.lower.graph import Node, Ref


class Geometry(NamedTuple):
    """Strides, dilations (0 is none) and padding before and after, as oneDNN takes them."""

    strides: Any
    dilations: Any
    before: Any
    after: Any


def convolution(build: Builder, node: Node) -> None:
    """activation(convolution(x, weight) + bias + residual)."""
    x, weight, bias, residual, stride, padding, dilation, groups, activation = node.arguments
    output = node.outputs[0]
    assert output is not None and isinstance(residual, Ref | None)  # noqa: S101
    source, kernel = build.tensor(x), build.tensor_shape(weight)
    tag = build.layout_of(build.position)
    geometry = _geometry(stride, padding, dilation)
    bias_layout = Descriptor.plain((kernel[0],)) if bias is not None else None
    described = (_activation_layout(tag, source.shape), _weight_layout(kernel, groups), bias_layout)
    kind = FORWARD_INFERENCE if build.graph.mode == "infer" else FORWARD_TRAINING

    def make(post_ops: list[PostOp], target: Descriptor) -> Primitive:
        return Primitive(
            build.engine, "convolution_forward", kind, CONVOLUTION_DIRECT, *described, target,
            *geometry, post_ops=post_ops,
        )  # fmt: skip

    target, after = _activation_layout(tag, output.shape, alike=False), post_op(activation)
    reads: dict[int, Tensor] = {}
    if residual is None:
        primitive = make(after, target)
        result = build.new(output.name, output.shape, primitive.descriptor(DST))
    else:
        primitive, result, reads = _with_residual(build, node, make, target, after)
    reads[SRC] = build.wanted(x, primitive.descriptor(SRC))
    reads[WEIGHTS] = build.wanted(weight, primitive.descriptor(WEIGHTS))
    if bias_layout is not None:
        reads[BIAS] = build.wanted(bias, bias_layout)
    build.call(primitive, reads, {DST: result})
    build.define(0, result)


def _with_residual(
    build: Builder, node: Node, make: Callable[[list[PostOp], Descriptor], Primitive],
    target: Descriptor, after: list[PostOp],
) -> tuple[Primitive, Tensor, dict[int, Tensor]]:  # fmt: skip
    """The primitive that adds to its destination: over the residual itself where nobody needs
    that any more, else with the residual as a further argument."""
    x, residual, output = node.arguments[0], node.arguments[3], node.outputs[0]
    assert output is not None  # noqa: S101
    primitive = make([PostOp("sum"), *after], target)
    wanted = primitive.descriptor(DST)
    if build.dies(residual) and not build.share_memory(residual, x):
        return primitive, build.wanted(residual, wanted), {}
    added = build.wanted(residual, wanted)
    primitive = make([PostOp("add", descriptor=wanted), *after], wanted)
    result = build.new(output.name, output.shape, wanted)
    return primitive, result, {POST_OP_STRIDE | SRC_1: added}


def convolution_backward(build: Builder, node: Node) -> None:
    """Gradients of x, weight and bias, as far as they are wanted."""
    gradient, x, weight, _, stride, padding, dilation = node.arguments[:7]
    transposed, _, groups, wanted = node.arguments[7:]
    assert isinstance(padding, tuple) and isinstance(wanted, tuple)  # noqa: S101
    if transposed:
        raise build.unsupported("transposed convolution")
    geometry = _geometry(stride, (*padding, *padding), dilation)
    tag = build.layout_of(build.position)
    kernel, source = build.tensor_shape(weight), build.tensor(x)
    outer = build.tensor(gradient)
    layouts = [
        _activation_layout(tag, source.shape),
        _weight_layout(kernel, groups),
        Descriptor.plain((kernel[0],)),
        _activation_layout(tag, outer.shape, alike=False),
    ]
    forward = Primitive(
        build.engine, "convolution_forward", FORWARD_TRAINING, CONVOLUTION_DIRECT,
        layouts[0], layouts[1], layouts[2] if wanted[2] else None, layouts[3], *geometry,
    )  # fmt: skip
    if wanted[0]:
        _backward_data(build, node, layouts, geometry, forward)
    if wanted[1] or wanted[2]:
        _backward_weights(build, node, layouts, geometry, forward)


def _backward_data(
    build: Builder, node: Node, layouts: list[Descriptor], geometry: Geometry, forward: Primitive
) -> None:
    gradient, x, weight = node.arguments[:3]
    source, weights, _, target = layouts
    primitive = Primitive(
        build.engine, "convolution_backward_data", CONVOLUTION_DIRECT, source, weights, target,
        *geometry, forward.description,
    )  # fmt: skip
    result = build.new(build.output_name(0), build.tensor(x).shape, primitive.descriptor(DIFF_SRC))
    reads = {
        DIFF_DST: build.wanted(gradient, primitive.descriptor(DIFF_DST)),
        WEIGHTS: build.wanted(weight, primitive.descriptor(WEIGHTS)),
    }
    build.call(primitive, reads, {DIFF_SRC: result}, "convolution_backward_data")
    build.define(0, result)


def _backward_weights(
    build: Builder, node: Node, layouts: list[Descriptor], geometry: Geometry, forward: Primitive
) -> None:
    gradient, x, weight = node.arguments[:3]
    with_bias = isinstance(node.arguments[10], tuple) and node.arguments[10][2] is True
    source, weights, bias, target = layouts
    primitive = Primitive(
        build.engine, "convolution_backward_weights", CONVOLUTION_DIRECT, source, weights,
        bias if with_bias else None, target, *geometry, forward.description,
    )  # fmt: skip
    kernel = build.tensor_shape(weight)
    wanted = primitive.descriptor(DIFF_WEIGHTS)
    result = build.new(build.output_name(1), wanted.shape, wanted)
    writes = {DIFF_WEIGHTS: result}
    if with_bias:
        writes[DIFF_BIAS] = build.new(build.output_name(2), (kernel[0],), bias)
    reads = {
        SRC: build.wanted(x, primitive.descriptor(SRC)),
        DIFF_DST: build.wanted(gradient, primitive.descriptor(DIFF_DST)),
    }
    build.call(primitive, reads, writes, "convolution_backward_weights")
    build.define(1, result)
    if with_bias:
        build.define(2, writes[DIFF_BIAS])


def _geometry(stride: Any, padding: Any, dilation: Any) -> Geometry:
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    return Geometry(
        dims(stride if len(stride) == 2 else stride * 2),
        dims([d - 1 for d in (dilation if len(dilation) == 2 else dilation * 2)]),
        dims((top, left)),
        dims((bottom, right)),
    )


def _activation_layout(tag: int, shape: tuple[int, ...], alike: bool = True) -> Descriptor:
    """The layout asked for; images of few channels come as they are, row-major."""
    block = channel_block()
    if tag == block.tag and shape[1] % block.size:  # the last block would be padded
        return Descriptor.plain(shape) if alike and shape[1] <= 4 else Descriptor.tagged(shape)
    return Descriptor.tagged(shape, tag)


def _weight_layout(kernel: tuple[int, ...], groups: Any) -> Descriptor:
    """Left to the primitive; groups are an axis of their own."""
    if groups == 1:
        return Descriptor.tagged(kernel)
    return Descriptor.tagged((groups, kernel[0] // groups, *kernel[1:]), ANY)


OPERATORS: dict[str, Operator] = {
    "golow.convolution": convolution,
    "aten.convolution_backward.default": convolution_backward,
}
