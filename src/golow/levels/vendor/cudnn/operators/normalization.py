"""Batch norm in training, forward and backward, with its activation; in inference where it was not
folded into a convolution."""

from __future__ import annotations

from typing import Any, NamedTuple

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.kernels import batch_norm as kernels
from golow.levels.vendor.cudnn.kernels.blocks import NO_CLIP, RELU, Clip
from golow.levels.vendor.cudnn.kernels.pointwise import number
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.operators.elementwise import apply, in_place_or_new
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Argument, Node, Ref

VECTOR = Layout("float32")


class Outcome(NamedTuple):
    """What tells backward where a result was clipped: a mask, or without one the shift, from which
    and from x it finds the result again."""

    shift: Tensor | None
    mask: Tensor | None


def batch_norm(build: Builder, node: Node) -> None:
    """(result, mean, inverse deviation, new running mean, new running variance)."""
    x, scale, shift, mean, variance, training, momentum, epsilon = node.arguments
    if training is not True:
        raise build.unsupported("batch norm with running statistics in a training step")
    _forward(build, (x, scale, shift, mean, variance), (momentum, epsilon), NO_CLIP)


def batch_norm_relu(build: Builder, node: Node) -> None:
    """The same, and relu."""
    *operands, momentum, epsilon = node.arguments
    _forward(build, tuple(operands), (momentum, epsilon), RELU)


def _forward(
    build: Builder,
    operands: tuple[Argument, ...],
    settings: tuple[Any, Any],
    clip: Clip,
    residual: Argument = None,
) -> None:
    argument, scale, shift, running_mean, running_variance = operands
    x = normed(build, argument)
    rows, channels = x.elements // x.shape[1], x.shape[1]
    launches = kernels.batch_norm(
        x.dtype, rows, channels, momentum=settings[0], epsilon=settings[1], clip=clip
    )
    added = build.wanted(residual, x.layout) if isinstance(residual, Ref) else None
    y = build.new(build.output(0).name, x.shape, x.layout)
    statistics = [build.new(f"{build.node.name}.{i}", (channels,), VECTOR) for i in (1, 2)]
    running = [build.state(a) for a in (running_mean, running_variance)]
    mask = None
    if added is not None and clip != NO_CLIP:
        size = kernels.mask_bytes(x.dtype, rows, channels)
        mask = build.new(f"{build.node.name}.mask", (size,), Layout("uint8"))
    reads = [x, added, _vector(build, scale), _vector(build, shift)]
    build.kernels(launches, reads, [y, *statistics, *running, mask])
    build.saved[build.output(0).name] = Outcome(reads[-1], mask)
    for index, tensor in enumerate((y, *statistics, *running)):
        build.define(index, tensor)


def batch_norm_activated(build: Builder, node: Node) -> None:
    """Batch norm, a residual and an activation."""
    x, residual, *others, momentum, epsilon, activation = node.arguments
    _forward(build, (x, *others), (momentum, epsilon), _clip(activation), residual)


def _clip(activation: Any) -> Clip:
    return RELU if activation[0] == "relu" else (float(activation[1]), float(activation[2]))


def batch_norm_backward(build: Builder, node: Node) -> None:
    """Gradients of x, scale and shift."""
    gradient, x, scale, _, _, mean, deviation, training = node.arguments[:8]
    if training is not True:
        raise build.unsupported("batch norm with running statistics in a training step")
    _backward(build, (gradient, None, x, scale, mean, deviation), NO_CLIP)


def batch_norm_relu_backward(build: Builder, node: Node) -> None:
    """Gradients of x, scale and shift, where relu let them through."""
    _backward(build, node.arguments[:6], RELU)


def batch_norm_activated_backward(build: Builder, node: Node) -> None:
    """Gradients of x, scale, shift and, where anybody reads it, of the residual. A tenth argument
    is a tensor that is added to the gradient."""
    second = node.arguments[9] if len(node.arguments) > 9 else None
    _backward(build, node.arguments[:6], _clip(node.arguments[7]), second)


def _backward(
    build: Builder, operands: tuple[Argument, ...], clip: Clip, second: Argument = None
) -> None:
    gradient, outcome, argument, scale, mean, deviation = operands
    x = normed(build, argument)
    rows, channels = x.elements // x.shape[1], x.shape[1]
    outer = build.wanted(gradient, x.layout)
    other = build.wanted(second, x.layout) if isinstance(second, Ref) else None
    shift, mask = build.saved[outcome.name] if isinstance(outcome, Ref) else Outcome(None, None)
    statistics = [build.wanted(a, VECTOR) for a in (mean, deviation)]
    reads = [outer, other, mask, x, _vector(build, scale), shift, *statistics]
    inner = in_place_or_new(build, gradient, outer)
    vectors = [
        build.new(f"{build.node.name}.{index}", (channels,), VECTOR)
        if build.node.outputs[index] is None
        else build.result(index, VECTOR)
        for index in (1, 2)
    ]
    branch = None
    if len(build.node.outputs) > 3 and build.node.outputs[3] is not None:
        branch = build.new(build.output(3).name, x.shape, x.layout)
        build.define(3, branch)
    launches = kernels.batch_norm_backward(
        x.dtype, rows, channels, clip=clip, masked=mask is not None
    )
    build.kernels(launches, reads, [inner, *vectors, branch])
    for index, tensor in enumerate((inner, *vectors)):
        build.define(index, tensor)


def normed(build: Builder, argument: Argument) -> Tensor:
    """What is normed: an image with its channels together, or a matrix [N, C]."""
    shape, dtype = build.value(argument).shape, build.types.computed
    if len(shape) == 2:
        return build.wanted(argument, Layout(dtype))
    if len(shape) != 4:
        raise build.unsupported(f"batch norm over {len(shape)} axes")
    return build.image(argument)


def _vector(build: Builder, argument: Argument) -> Tensor | None:
    return build.wanted(argument, VECTOR) if isinstance(argument, Ref) else None


def inference(build: Builder, node: Node) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, with running statistics."""
    x, scale, shift, mean, variance = node.arguments[:5]
    if node.op == "aten.batch_norm.default":
        training, _, epsilon = node.arguments[5:8]
        if training:
            raise build.unsupported("batch norm in training mode within inference")
    else:
        epsilon = node.arguments[6]
    source = normed(build, x)
    factor = f"rsqrtf(c + {number(float(epsilon))})"  # type: ignore[arg-type]
    tensors = [source, build.wanted(mean, VECTOR), build.wanted(variance, VECTOR)]
    expression = f"(a - b) * {factor}"
    if isinstance(scale, Ref) and isinstance(shift, Ref):
        expression += " * d + e"
        tensors += [build.wanted(scale, VECTOR), build.wanted(shift, VECTOR)]
    result = in_place_or_new(build, x, source)
    apply(build, expression, tensors, result)
    build.define(0, result)


OPERATORS: dict[str, Operator] = {
    "aten._native_batch_norm_legit_functional.default": batch_norm,
    "aten.native_batch_norm_backward.default": batch_norm_backward,
    "golow.batch_norm_relu": batch_norm_relu,
    "golow.batch_norm_relu_backward": batch_norm_relu_backward,
    "golow.batch_norm_activated": batch_norm_activated,
    "golow.batch_norm_activated_backward": batch_norm_activated_backward,
    "aten.batch_norm.default": inference,
    "aten._native_batch_norm_legit_no_training.default": inference,
}
