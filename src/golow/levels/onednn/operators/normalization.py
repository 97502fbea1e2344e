"""Batch norm: with running statistics, or in training with its relu and its gradients."""

from __future__ import annotations

from golow.levels.onednn.builder import Builder, Operator, Tensor
from golow.levels.onednn.library import (
    BACKWARD,
    DIFF_DST,
    DIFF_SCALE,
    DIFF_SHIFT,
    DIFF_SRC,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    FUSE_RELU,
    GLOBAL_STATISTICS,
    MEAN,
    MULTIPLE_SRC,
    SCALE,
    SHIFT,
    SRC,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
    WORKSPACE,
    Descriptor,
    Primitive,
    array,
    number,
)
from golow.lower.graph import Argument, Node, Ref


def with_running_statistics(build: Builder, node: Node) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + shift, where no convolution took it in."""
    if node.op == "aten.batch_norm.default":
        x, scale, shift, mean, variance, training, _, epsilon, _ = node.arguments
        if training:
            raise build.unsupported("batch norm that trains, in inference")
    else:
        x, scale, shift, mean, variance, _, epsilon = node.arguments
    source = build.tensor(x)
    flags = GLOBAL_STATISTICS | _affine(scale, shift)
    primitive = Primitive(
        build.engine, "batch_normalization_forward", FORWARD_INFERENCE, source.layout,
        source.layout, number(float(epsilon)), flags,  # type: ignore[arg-type]
    )  # fmt: skip
    reads = {SRC: source, MEAN: build.plain(mean), VARIANCE: build.plain(variance)}
    reads |= _scale_and_shift(build, scale, shift)
    result = build.in_place_or_new(x, source)
    build.call(primitive, reads, {DST: result})
    build.define(0, result)


def forward(build: Builder, node: Node) -> None:
    """Batch norm in training: result, mean, variance, new running statistics.

    The variance stands where ATen hands on the inverse deviation; the gradient, which alone reads
    it, wants it so.
    """
    relu = FUSE_RELU if node.op == "golow.batch_norm_relu" else 0
    if relu:
        x, scale, shift, running_mean, running_variance, momentum, epsilon = node.arguments
    else:
        x, scale, shift, running_mean, running_variance, training, momentum, epsilon = (
            node.arguments
        )
        if training is not True:
            raise build.unsupported("batch norm with running statistics, in training")
    source = build.tensor(x)
    flags = relu | _affine(scale, shift)
    primitive = Primitive(
        build.engine, "batch_normalization_forward", FORWARD_TRAINING, source.layout,
        source.layout, number(float(epsilon)), flags,  # type: ignore[arg-type]
    )  # fmt: skip
    channels = Descriptor.plain((source.shape[1],))
    result = build.new(build.output_name(0), source.shape, source.layout)
    mean = build.new(build.output_name(1), channels.shape, channels)
    variance = build.new(build.output_name(2), channels.shape, channels)
    writes = {DST: result, MEAN: mean, VARIANCE: variance}
    if relu:
        mask = primitive.descriptor(WORKSPACE)
        writes[WORKSPACE] = build.new(f"{build.output_name(0)}_mask", (mask.bytes,), mask)
        build.workspaces[build.output_name(0)] = writes[WORKSPACE]
    reads = {SRC: source, **_scale_and_shift(build, scale, shift)}
    build.call(primitive, reads, writes)
    for index, tensor in enumerate((result, mean, variance)):
        build.define(index, tensor)
    count = 1
    for size in (source.shape[0], *source.shape[2:]):
        count *= size
    assert isinstance(momentum, float)  # noqa: S101
    unbiased = momentum * count / max(count - 1, 1)
    _running(build, 3, running_mean, mean, 1 - momentum, momentum)
    _running(build, 4, running_variance, variance, 1 - momentum, unbiased)


def _running(
    build: Builder, index: int, old: Argument, batch: Tensor, keep: float, take: float
) -> None:
    """old * keep + batch * take, over the old one where that may be."""
    if build.node.outputs[index] is None:
        return
    before = build.plain(old)
    factors = (number(0.0).__class__ * 2)(keep, take)
    layouts = [before.layout, batch.layout]
    primitive = Primitive(build.engine, "sum", before.layout, 2, factors, array(layouts))
    result = build.state_for(index) or build.new(
        build.output_name(index), before.shape, before.layout
    )
    reads = {MULTIPLE_SRC: before, MULTIPLE_SRC + 1: batch}
    build.call(primitive, reads, {DST: result}, "running_statistics")
    build.define(index, result)


def backward(build: Builder, node: Node) -> None:
    """Gradients of x, scale and shift."""
    relu = FUSE_RELU if node.op == "golow.batch_norm_relu_backward" else 0
    if relu:
        gradient, outcome, x, scale, mean, variance, epsilon, _ = node.arguments
        assert isinstance(outcome, Ref)  # noqa: S101
    else:
        gradient, x, scale, _, _, mean, variance, training, epsilon, _ = node.arguments
        if training is not True:
            raise build.unsupported("the gradient of batch norm with running statistics")
    source = build.tensor(x)
    outer = build.wanted(gradient, source.layout)
    flags = relu | _affine(scale, scale)
    eps = number(float(epsilon))  # type: ignore[arg-type]
    hint = Primitive(
        build.engine, "batch_normalization_forward", FORWARD_TRAINING, source.layout,
        source.layout, eps, flags,
    )  # fmt: skip
    primitive = Primitive(
        build.engine, "batch_normalization_backward", BACKWARD, outer.layout, outer.layout,
        source.layout, eps, flags, hint.description,
    )  # fmt: skip
    reads = {
        SRC: source,
        DIFF_DST: outer,
        MEAN: build.tensor(mean),
        VARIANCE: build.tensor(variance),
        **_scale_and_shift(build, scale, None),
    }
    if relu:
        reads[WORKSPACE] = build.workspaces[outcome.name]
    channels = Descriptor.plain((source.shape[1],))
    writes = {DIFF_SRC: build.in_place_or_new(gradient, outer)}
    if flags & USE_SCALE:
        writes[DIFF_SCALE] = build.new(build.output_name(1), channels.shape, channels)
        writes[DIFF_SHIFT] = build.new(build.output_name(2), channels.shape, channels)
    build.call(primitive, reads, writes)
    for index, tensor in enumerate(writes.values()):
        build.define(index, tensor)


def _affine(scale: Argument, shift: Argument) -> int:
    return (USE_SCALE if scale is not None else 0) | (USE_SHIFT if shift is not None else 0)


def _scale_and_shift(build: Builder, scale: Argument, shift: Argument) -> dict[int, Tensor]:
    found = {}
    if scale is not None:
        found[SCALE] = build.plain(scale)
    if shift is not None:
        found[SHIFT] = build.plain(shift)
    return found


OPERATORS: dict[str, Operator] = {
    "aten.batch_norm.default": with_running_statistics,
    "aten._native_batch_norm_legit_no_training.default": with_running_statistics,
    "aten._native_batch_norm_legit_functional.default": forward,
    "golow.batch_norm_relu": forward,
    "aten.native_batch_norm_backward.default": backward,
    "golow.batch_norm_relu_backward": backward,
}
