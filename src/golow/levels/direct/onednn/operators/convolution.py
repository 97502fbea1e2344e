"""Convolution forward and backward, with bias, residual and activation fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    ANY,
    BIAS,
    CHANNELS_LAST,
    CONVOLUTION_DIRECT,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    FORWARD_TRAINING,
    POST_OP_STRIDE,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block, dims
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.refusing import without_algorithm
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.depthwise import depthwise_weights, is_depthwise, is_fast
from golow.levels.direct.onednn.steps.eltwise import post_ops
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.quantized_convolution import QuantizedConvolution

Make = Callable[[list[PostOp], Descriptor], Primitive]


class Geometry(NamedTuple):
    """Strides, dilations (0 means none) and padding before and after, as oneDNN takes them."""

    strides: Any
    dilations: Any
    before: Any
    after: Any


class Backward(NamedTuple):
    """Description of both backward primitives: layouts of image, weight, bias (None if its gradient
    is not wanted) and result; and the forward primitive, their hint."""

    source: Descriptor
    weights: Descriptor
    bias: Descriptor | None
    target: Descriptor
    geometry: Geometry
    forward: Primitive


def convolution(build: Builder, arguments: Convolution) -> None:
    """activation(convolution(x, weight) + bias + residual)."""
    output, x, bias = build.current.output(), build.values.tensor(arguments.x), arguments.bias
    kernel = build.current.value(arguments.weight).shape
    tag = build.layout_of(build.current.position)
    bias_layout = Descriptor.plain((kernel[0],)) if bias is not None else None
    weights = weight_layout(kernel, arguments.groups)
    described = (_activation_layout(tag, x.shape), weights, bias_layout)

    def make(after: list[PostOp], target: Descriptor) -> Primitive:
        return Primitive(
            build.engine, "convolution_forward", build.forward_kind, CONVOLUTION_DIRECT, *described,
            target, *geometry(arguments), post_ops=after,
        )  # fmt: skip

    target = _activation_layout(tag, output.shape, alike=False)
    after = post_ops(arguments.activation)
    added: dict[int, Tensor] = {}
    if arguments.residual is None:
        primitive = make(after, target)
        result = build.memory.new(output.name, output.shape, primitive.descriptor(DST))
    else:
        residual = arguments.residual
        primitive, result, added = with_residual(build, residual, arguments.x, make, target, after)
    reads = {
        SRC: build.values.wanted(arguments.x, primitive.descriptor(SRC)),
        WEIGHTS: build.values.wanted(arguments.weight, primitive.descriptor(WEIGHTS)),
    }
    if bias is not None and bias_layout is not None:
        reads[BIAS] = build.values.wanted(bias, bias_layout)
    inside = result if arguments.residual is not None and not added else None
    build.steps.call(primitive, reads | added, {DST: result}, adds_to=inside)
    build.values.define(0, result)


def with_residual(
    build: Builder, residual: Ref, x: Ref, make: Make, target: Descriptor, after: list[PostOp]
) -> tuple[Primitive, Tensor, dict[int, Tensor]]:
    """Return the primitive, its result and its extra arguments. The primitive adds the residual: in
    the residual's own memory if it dies here, otherwise as another argument."""
    primitive = make([PostOp("sum", 1.0), *after], target)
    wanted = primitive.descriptor(DST)
    if build.values.dies(residual) and not build.current.share_memory(residual, x):
        return primitive, build.values.wanted(residual, wanted), {}
    added = build.values.wanted(residual, wanted)
    primitive = make([PostOp("add", descriptor=wanted), *after], wanted)
    result = build.memory.new(build.current.output().name, build.current.output().shape, wanted)
    return primitive, result, {POST_OP_STRIDE | SRC_1: added}


def convolution_backward(build: Builder, arguments: ConvolutionBackward) -> None:
    """Define those gradients of x, weight and bias that are wanted."""
    of_x, of_weight, of_bias = arguments.wanted
    tag = build.layout_of(build.current.position)
    kernel, x = build.current.value(arguments.weight).shape, build.values.tensor(arguments.x)
    outer = build.values.tensor(arguments.gradient)
    where = geometry(arguments)
    layouts = (
        _activation_layout(tag, x.shape),
        weight_layout(kernel, arguments.groups),
        Descriptor.plain((kernel[0],)) if of_bias else None,
        _activation_layout(tag, outer.shape, alike=False),
    )
    forward = Primitive(
        build.engine, "convolution_forward", FORWARD_TRAINING, CONVOLUTION_DIRECT, *layouts,
        *where,
    )  # fmt: skip
    described = Backward(*layouts, where, forward)
    if of_x:
        _backward_data(build, arguments, described)
    if of_weight or of_bias:
        _backward_weights(build, arguments, described)


def _backward_data(build: Builder, arguments: ConvolutionBackward, described: Backward) -> None:
    primitive = Primitive(
        build.engine, "convolution_backward_data", CONVOLUTION_DIRECT, described.source,
        described.weights, described.target, *described.geometry, described.forward.description,
    )  # fmt: skip
    shape = build.current.value(arguments.x).shape
    result = build.memory.new(build.current.output_name(0), shape, primitive.descriptor(DIFF_SRC))
    reads = {
        DIFF_DST: build.values.wanted(arguments.gradient, primitive.descriptor(DIFF_DST)),
        WEIGHTS: build.values.wanted(arguments.weight, primitive.descriptor(WEIGHTS)),
    }
    build.steps.call(primitive, reads, {DIFF_SRC: result}, "convolution_backward_data")
    build.values.define(0, result)


def _backward_weights(build: Builder, arguments: ConvolutionBackward, described: Backward) -> None:
    primitive = Primitive(
        build.engine, "convolution_backward_weights", CONVOLUTION_DIRECT, described.source,
        described.weights, described.bias, described.target, *described.geometry,
        described.forward.description,
    )  # fmt: skip
    if build.generates and is_depthwise(build, arguments) and not is_fast(primitive):
        depthwise_weights(build, arguments)
        return
    wanted = primitive.descriptor(DIFF_WEIGHTS)
    result = build.memory.new(build.current.output_name(1), wanted.shape, wanted)
    writes = {DIFF_WEIGHTS: result}
    if described.bias is not None:
        filters = described.bias.shape
        writes[DIFF_BIAS] = build.memory.new(build.current.output_name(2), filters, described.bias)
    reads = {
        SRC: build.values.wanted(arguments.x, primitive.descriptor(SRC)),
        DIFF_DST: build.values.wanted(arguments.gradient, primitive.descriptor(DIFF_DST)),
    }
    build.steps.call(primitive, reads, writes, "convolution_backward_weights")
    build.values.define(1, result)
    if described.bias is not None:
        build.values.define(2, writes[DIFF_BIAS])


def geometry(arguments: Convolution | ConvolutionBackward | QuantizedConvolution) -> Geometry:
    axes = len(arguments.stride)
    before, after = arguments.padding[:axes], arguments.padding[axes:]
    holes = [d - 1 for d in arguments.dilation]
    return Geometry(dims(arguments.stride), dims(holes), dims(before), dims(after))


def _activation_layout(tag: int, shape: tuple[int, ...], alike: bool = True) -> Descriptor:
    """The requested layout; images of few channels stay row-major, volumes are in channels last or
    as the primitive likes."""
    if len(shape) > 4:
        last = (0, *range(2, len(shape)), 1)
        return Descriptor.ordered(shape, last) if tag == CHANNELS_LAST else Descriptor.tagged(shape)
    block = channel_block()
    if tag == block.tag and shape[1] % block.size:  # the last block would be padded
        return Descriptor.plain(shape) if alike and shape[1] <= 4 else Descriptor.tagged(shape)
    return Descriptor.tagged(shape, tag)


def weight_layout(kernel: tuple[int, ...], groups: int, dtype: str = "float32") -> Descriptor:
    """The primitive chooses the layout; groups are a separate axis."""
    if groups == 1:
        return Descriptor.tagged(kernel, ANY, dtype)
    return Descriptor.tagged((groups, kernel[0] // groups, *kernel[1:]), ANY, dtype)


def _refuse(arguments: Convolution, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or without_algorithm(question, arguments.activation)


IMPLEMENTATIONS = (
    Implementation(Convolution, convolution, _refuse),
    Implementation(ConvolutionBackward, convolution_backward, refuse_integers),
)
