"""Convolution forward and backward, with bias, residual and activation in one kernel where that can
be had."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.operators.elementwise import activated
from golow.levels.vendor.cudnn.operators.shapes import reduced
from golow.levels.vendor.cudnn.own import OwnConvolution, takes
from golow.levels.vendor.cudnn.products import Convolution, fuses
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Argument, Node, Ref
from golow.lower.rewriting import pair

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engine

# Channels that one 16-byte load takes: an image of three is padded to these.
PADDED = {"float32": 4, "bfloat16": 8, "float16": 8}


# Elements of a result that a large GPU computes at once: 132 multiprocessors, a few tiles of
# 128 x 128 on each.
SMALL = 8_000_000


def convolution(build: Builder, node: Node) -> None:
    """activation(convolution(x, weight) + bias + residual)."""
    x, weight, bias, residual, stride, padding, dilation, groups, activation = node.arguments
    plain = _plain(build, (x, weight), build.output().shape, (stride, padding, dilation, groups))
    whole = msgspec.structs.replace(
        plain,
        bias=isinstance(bias, Ref),
        residual=isinstance(residual, Ref),
        activation=activation,
    )
    done, engine = _fused(build, whole)
    reads = [_image(build, x, done), _weight(build, weight, done)]
    if isinstance(bias, Ref):
        # The libraries take it in the type of the products, golow's own kernels in float32.
        own = isinstance(engine, OwnConvolution)
        reads.append(build.wanted(bias, Layout("float32" if own else done.dtype)))
    layout = Layout(done.result, "channels_last", done.output[1])
    added = [build.wanted(residual, layout)] if whole.residual else []
    result = build.new(build.output().name, build.output().shape, layout)
    build.engine(engine, [*reads, *(added if done.residual else [])], [result])
    if done is not whole:
        activated(build, [result, *added], result, whole.activation)
    build.define(0, result)


def _fused(build: Builder, whole: Convolution) -> tuple[Convolution, Engine]:
    """As much of the operation as one engine can do, and that engine; the rest is done after it."""
    # Without tensor cores the library fuses a residual by a kernel thirty times slower.
    slow = whole.residual and whole.arithmetic == "ieee"
    engine = build.engines.choose(whole) if fuses(whole.activation) and not slow else None
    if engine is not None:
        return whole, engine
    if whole.residual or whole.activation:
        rest = msgspec.structs.replace(whole, residual=False, activation=())
        if (engine := build.engines.choose(rest)) is not None:
            return rest, engine
    if takes(whole):
        return whole, OwnConvolution(whole, build.engines.gpu)
    return rest, _engine(build, rest)


def convolution_backward(build: Builder, node: Node) -> None:
    """Gradients of x, weight and bias, as far as they are wanted."""
    gradient, x, weight, _, stride, padding, dilation = node.arguments[:7]
    transposed, _, groups, wanted = node.arguments[7:]
    assert isinstance(padding, tuple) and isinstance(wanted, tuple)  # noqa: S101
    if transposed:
        raise build.unsupported("transposed convolution")
    outer = build.image(gradient)
    sides = padding if len(padding) == 2 else padding * 2
    geometry = (stride, (*sides, *sides), dilation, groups)
    plain = _plain(build, (x, weight), outer.shape, geometry)
    if wanted[1] is True and node.outputs[1] is not None:
        done = msgspec.structs.replace(plain, direction="backward_weight")
        engine = _engine(build, done)
        dtype = "float32" if isinstance(engine, OwnConvolution) else done.result
        result = build.result(1, Layout(dtype, "channels_last", done.weight[1]))
        reads = [_image(build, x, done), outer]
        build.engine(engine, reads, [result], "convolution_backward_weight", _leaves_room(done))
        build.define(1, result)
    if wanted[0] is True and node.outputs[0] is not None:
        done = msgspec.structs.replace(plain, direction="backward_data")
        layout = Layout(done.result, "channels_last", done.image[1])
        result = build.new(build.output(0).name, build.output(0).shape, layout)
        reads = [outer, _weight(build, weight, done)]
        build.engine(_engine(build, done), reads, [result], "convolution_backward_data")
        build.define(0, result)
    if wanted[2] is True and node.outputs[2] is not None:
        pixels = outer.elements // outer.shape[1]
        reduced(build, outer, (1, pixels, outer.shape[1]), 2)


def _leaves_room(operation: Convolution) -> bool:
    """Whether the steps that follow find multiprocessors idle beside it. The gradient of a weight
    is needed at the end of the iteration only."""
    return math.prod(operation.output) < SMALL


def _engine(build: Builder, operation: Convolution) -> Engine:
    """A library's where there is one, else golow's own kernels."""
    engine = build.engines.choose(operation)
    if engine is None and takes(operation):
        engine = OwnConvolution(operation, build.engines.gpu)
    if engine is None:
        raise build.unsupported(f"{build.node.op} of these shapes")
    return engine


def _plain(
    build: Builder,
    operands: tuple[Argument, Argument],
    output: Any,
    geometry: tuple[Any, Any, Any, Any],
) -> Convolution:
    """The convolution without anything fused; the image's channels as they lie in memory."""
    x, weight = (build.value(operand).shape for operand in operands)
    kernel: Any = weight[2:]
    if len(x) != 4:
        raise build.unsupported(f"a convolution over {len(x) - 2} axes")
    stride, padding, dilation, groups = geometry
    channels, each = x[1], PADDED[build.types.computed]
    if build.is_input(operands[0]):
        if groups == 1 and weight[0] % 4 == 0:
            channels = -(-channels // each) * each
    elif groups == 1:
        channels = max(channels, build.tensor(operands[0]).layout.channels)
    return Convolution(
        direction="forward",
        image=(x[0], channels, *x[2:]),
        output=output,
        kernel=kernel,
        stride=pair(stride),
        padding=padding,
        dilation=pair(dilation),
        groups=groups,
        dtype=build.types.computed,
        result=build.types.computed,
        arithmetic=build.types.convolutions,
    )


def _image(build: Builder, x: Argument, operation: Convolution) -> Tensor:
    return build.wanted(x, Layout(operation.dtype, "channels_last", operation.image[1]))


def _weight(build: Builder, weight: Argument, operation: Convolution) -> Tensor:
    return build.wanted(weight, Layout(operation.dtype, "channels_last", operation.weight[1]))


OPERATORS: dict[str, Operator] = {
    "golow.convolution": convolution,
    "aten.convolution_backward.default": convolution_backward,
}
