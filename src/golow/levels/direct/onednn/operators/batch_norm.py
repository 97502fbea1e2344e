"""Batch norm: with running statistics, or in training with a fused relu, and its gradients."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    BACKWARD,
    BINARY_MUL,
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
    POST_OP_STRIDE,
    SCALE,
    SHIFT,
    SRC,
    SRC_1,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
    WORKSPACE,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, array, number, numbers
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import group_statistics
from golow.levels.direct.onednn.steps import activated_norms
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.statistics import Groups, combined, corrections, groups_of
from golow.levels.direct.refusing import not_made_by, read_by_others, refuse_integers
from golow.lower.ir.graph import Activation, Graph, Node, Ref
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward, BatchNormInference


def inference(build: Builder, arguments: BatchNormInference) -> None:
    """relu((x - mean) / sqrt(variance + epsilon) * scale + shift), if it is not folded into a
    layer."""
    x = build.values.tensor(arguments.x)
    affine = _scale_and_shift(build, arguments.scale, arguments.shift)
    flags = GLOBAL_STATISTICS | _flags(affine) | _relu(arguments.activation)
    primitive = Primitive(
        build.engine, "batch_normalization_forward", FORWARD_INFERENCE, x.layout, x.layout,
        number(arguments.epsilon), flags,
    )  # fmt: skip
    mean, variance = build.values.plain(arguments.mean), build.values.plain(arguments.variance)
    reads = {SRC: x, MEAN: mean, VARIANCE: variance, **affine}
    result = build.values.in_place_or_new(arguments.x, x)
    build.steps.call(primitive, reads, {DST: result})
    build.values.define(0, result)


# Names of what is repeated for the view's channels.
SPREAD = {
    MEAN: "mean_spread",
    VARIANCE: "variance_spread",
    SCALE: "scale_spread",
    SHIFT: "shift_spread",
}


class Saved(NamedTuple):
    """Values that forward saves for backward: the groups, if any; mean, variance and scale for the
    view's channels; the mask of the relu."""

    groups: Groups | None
    mean: Tensor
    variance: Tensor
    scale: Tensor | None
    mask: Tensor | None


def batch_norm(build: Builder, arguments: BatchNorm) -> None:
    """Define result, mean, variance and new running statistics of batch norm in training.

    The variance takes the place of ATen's inverse deviation where only the gradient reads it:
    oneDNN's gradient needs the variance.
    """
    if activated_norms.takes(arguments.activation):
        mean, variance, deviation = activated_norms.norm(build, arguments)
        build.values.define(1, mean)
        build.values.define(2, deviation)
    else:
        mean, variance = _by_library(build, arguments)
    shape, momentum = build.current.value(arguments.x).shape, arguments.momentum
    count = math.prod(shape) // shape[1]
    unbiased = momentum * count / max(count - 1, 1)
    _running(build, 3, arguments.running_mean, mean, 1 - momentum, momentum)
    _running(build, 4, arguments.running_variance, variance, 1 - momentum, unbiased)


def _by_library(build: Builder, arguments: BatchNorm) -> tuple[Tensor, Tensor]:
    x = build.values.tensor(arguments.x)
    affine = _scale_and_shift(build, arguments.scale, arguments.shift)
    flags = _relu(arguments.activation) | _flags(affine)
    groups = groups_of(x)
    if groups is None:
        mean, variance = _in_one(build, x, affine, flags, arguments.epsilon)
    else:
        mean, variance = _in_groups(build, x, affine, flags, arguments.epsilon, groups)
    if build.current.is_read(2) and not _is_for_gradient(build.current.graph, build.current.node):
        _define_deviation(build, variance, arguments.epsilon)
    return mean, variance


def _is_for_gradient(graph: Graph, node: Node) -> bool:
    """True if a gradient in the same graph reads the variance."""
    value = node.outputs[2]
    gradients = (other for other in graph.nodes if other.op == BatchNormBackward.op())
    return value is not None and any(value.name in other.references() for other in gradients)


def _define_deviation(build: Builder, variance: Tensor, epsilon: float) -> None:
    """Define 1 / sqrt(variance + epsilon), for the backward pass in a separate graph."""
    name = f"{build.current.name}_inverse_deviation"
    deviation, small = _channels(build, name, variance.shape[0]), np.float32(epsilon)

    def invert(variance: Any, deviation: Any) -> None:
        np.divide(1, np.sqrt(variance + small), out=deviation)

    build.steps.array_call(invert, [variance], [deviation])
    build.values.define(2, deviation)


def _in_one(
    build: Builder, x: Tensor, affine: dict[int, Tensor], flags: int, epsilon: float
) -> tuple[Tensor, Tensor]:
    primitive = _forward_primitive(build, x.layout, epsilon, flags)
    result = build.memory.new(build.current.output_name(0), x.shape, x.layout)
    mean, variance = (_channels(build, build.current.output_name(i), x.shape[1]) for i in (1, 2))
    mask = _mask(build, primitive, flags)
    writes = {DST: result, MEAN: mean, VARIANCE: variance, **({WORKSPACE: mask} if mask else {})}
    build.steps.call(primitive, {SRC: x, **affine}, writes)
    _finish(build, result, mean, variance, private=2)
    build.current.note(
        build.current.output_name(1), Saved(None, mean, variance, affine.get(SCALE), mask)
    )
    return mean, variance


def _in_groups(
    build: Builder, x: Tensor, affine: dict[int, Tensor], flags: int, epsilon: float,
    groups: Groups,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    view = x._replace(descriptor=groups.layout)
    many, node = groups.number * x.shape[1], build.current.name
    result = build.memory.new(build.current.output_name(0), x.shape, x.layout)
    target = result._replace(descriptor=groups.layout)
    statistics = _forward_primitive(build, groups.layout, epsilon, 0)
    means, variances = (_channels(build, f"{node}_group_{s}", many) for s in ("means", "variances"))
    # Its result uses each group's own statistics; the next step overwrites it.
    writes = {DST: target, MEAN: means, VARIANCE: variances}
    build.steps.call(statistics, {SRC: view}, writes, "batch_statistics")

    mean, variance = (_channels(build, build.current.output_name(i), x.shape[1]) for i in (1, 2))
    spread = {
        name: _channels(build, f"{node}_{SPREAD[name]}", many) for name in (MEAN, VARIANCE, *affine)
    }

    def combine(means: Any, variances: Any, *rest: Any) -> None:
        given, (mean, variance), views = rest[: len(affine)], rest[-2:], rest[len(affine) : -2]
        mean[...], variance[...] = combined(groups, means, variances)
        for channels, into in zip((mean, variance, *given), views, strict=True):
            groups.spread(channels, into)

    given, made = [means, variances, *affine.values()], [*spread.values(), mean, variance]
    if build.generates:
        channels, block = x.shape[1], groups.order[-1]
        kernel = group_statistics.combined(channels, groups.number, block, len(affine))
        build.steps.kernel(kernel, given, made)
    else:
        build.steps.array_call(combine, given, made)
    primitive = _forward_primitive(build, groups.layout, epsilon, GLOBAL_STATISTICS | flags)
    mask = _mask(build, primitive, flags)
    build.steps.call(
        primitive, {SRC: view, **spread}, {DST: target, **({WORKSPACE: mask} if mask else {})}
    )
    _finish(build, result, mean, variance, private=2)
    saved = Saved(groups, spread[MEAN], spread[VARIANCE], spread.get(SCALE), mask)
    build.current.note(build.current.output_name(1), saved)
    return mean, variance


def _forward_primitive(build: Builder, layout: Descriptor, epsilon: float, flags: int) -> Primitive:
    return Primitive(
        build.engine, "batch_normalization_forward", FORWARD_TRAINING, layout, layout,
        number(epsilon), flags,
    )  # fmt: skip


def _channels(build: Builder, name: str, count: int) -> Tensor:
    """Allocate one number for each channel."""
    return build.memory.new(name, (count,), Descriptor.plain((count,)))


def _mask(build: Builder, primitive: Primitive, flags: int) -> Tensor | None:
    if not flags & FUSE_RELU:
        return None
    mask = primitive.descriptor(WORKSPACE)
    return build.memory.new(f"{build.current.output_name(0)}_mask", (mask.bytes,), mask)


def _finish(build: Builder, *results: Tensor, private: int | None = None) -> None:
    for index, tensor in enumerate(results):
        build.values.define(index, tensor, private=index == private)


def _running(build: Builder, index: int, old: Ref, batch: Tensor, keep: float, take: float) -> None:
    """Add the step old * keep + batch * take, in place if possible."""
    if not build.current.is_read(index):
        return
    before = build.values.plain(old)
    layouts = [before.layout, batch.layout]
    primitive = Primitive(
        build.engine, "sum", before.layout, 2, numbers((keep, take)), array(layouts)
    )
    result = build.outputs.state_for(index) or build.memory.new(
        build.current.output_name(index), before.shape, before.layout
    )
    reads = {MULTIPLE_SRC: before, MULTIPLE_SRC + 1: batch}
    build.steps.call(primitive, reads, {DST: result}, "running_statistics")
    build.values.define(index, result)


def batch_norm_backward(build: Builder, arguments: BatchNormBackward) -> None:
    """Define the gradients of x, scale and shift. The relu's mask replaces the norm's result."""
    if activated_norms.takes(arguments.activation):
        activated_norms.gradients(build, arguments)
        return
    saved = build.current.found_note(arguments.mean.name, Saved) or _given(build, arguments)
    x = build.values.tensor(arguments.x)
    outer = build.values.wanted(arguments.gradient, x.layout)
    layout = x.layout if saved.groups is None else saved.groups.layout
    inner = build.values.in_place_or_new(arguments.gradient, outer)._replace(descriptor=layout)
    # The sums over the pixels are the gradients of scale and shift; dx needs them in any case.
    flags = _relu(arguments.activation) | USE_SCALE | USE_SHIFT
    hint = _forward_primitive(build, layout, arguments.epsilon, flags)
    primitive = Primitive(
        build.engine, "batch_normalization_backward", BACKWARD, layout, layout, layout,
        number(arguments.epsilon), flags, hint.description,
    )  # fmt: skip
    count = saved.mean.shape[0]
    reads = {
        SRC: x._replace(descriptor=layout),
        DIFF_DST: outer._replace(descriptor=layout),
        MEAN: saved.mean,
        VARIANCE: saved.variance,
        SCALE: saved.scale or build.memory.constant(f"{build.current.name}_ones", np.ones(count)),
    }
    if saved.mask is not None:
        reads[WORKSPACE] = saved.mask
    names = [build.current.output_name(1), build.current.output_name(2)]
    if saved.groups is not None:
        names = [f"{build.current.name}_group_sums_normed", f"{build.current.name}_group_sums"]
    sums = [_channels(build, name, count) for name in names]
    build.steps.call(primitive, reads, {DIFF_SRC: inner, DIFF_SCALE: sums[0], DIFF_SHIFT: sums[1]})
    if saved.groups is not None:
        sums = _corrected(build, arguments, saved.groups, x, inner, sums)
    _finish(build, inner._replace(descriptor=x.layout), *sums)


def _given(build: Builder, arguments: BatchNormBackward) -> Saved:
    """Return what forward saved in a separate graph: the variance comes back from its root."""
    mean = build.values.plain(arguments.mean)
    deviation = build.values.plain(arguments.inverse_deviation)
    variance = _channels(build, f"{build.current.name}_variance", deviation.shape[0])
    small = np.float32(arguments.epsilon)

    def square(deviation: Any, variance: Any) -> None:
        np.subtract(1 / (deviation * deviation), small, out=variance)

    build.steps.array_call(square, [deviation], [variance])
    scale = None if arguments.scale is None else build.values.plain(arguments.scale)
    return Saved(None, mean, variance, scale, None)


def _corrected(
    build: Builder, arguments: BatchNormBackward, groups: Groups, x: Tensor, inner: Tensor,
    sums: list[Tensor],
) -> list[Tensor]:  # fmt: skip
    """Turn the groups' gradients into those of the whole batch: inner += level + slope x."""
    channels, scale, epsilon = x.shape[1], arguments.scale, arguments.epsilon
    level, slope = (
        _channels(build, f"{build.current.name}_{name}", channels * groups.number)
        for name in ("level", "slope")
    )
    totals = [_channels(build, build.current.output_name(i), channels) for i in (1, 2)]
    given = [build.values.tensor(arguments.mean), build.values.tensor(arguments.inverse_deviation)]
    given += [build.values.plain(scale)] if scale is not None else []

    def correct(normed: Any, ones: Any, mean: Any, variance: Any, *rest: Any) -> None:
        *given, level, slope, total_normed, total_ones = rest
        found = corrections(
            groups, (ones, normed), mean, variance, given[0] if given else None, epsilon
        )
        level[...], slope[...], total_ones[...], total_normed[...] = found

    if build.generates:
        kernel = group_statistics.corrections(
            channels, groups.number, groups.order[-1], groups.pixels, scale is not None, epsilon
        )
        build.steps.kernel(kernel, [*sums, *given], [level, slope, *totals])
    else:
        build.steps.array_call(correct, [*sums, *given], [level, slope, *totals])
    primitive = Primitive(
        build.engine, "binary", BINARY_MUL, groups.wide, groups.narrow, groups.wide,
        post_ops=[PostOp("add", descriptor=groups.narrow), PostOp("sum", 1.0)],
    )  # fmt: skip
    reads = {
        SRC: x._replace(descriptor=groups.wide),
        SRC_1: slope._replace(descriptor=groups.narrow),
        POST_OP_STRIDE | SRC_1: level._replace(descriptor=groups.narrow),
    }
    target = inner._replace(descriptor=groups.wide)
    build.steps.call(primitive, reads, {DST: target}, "correction")
    return totals


def _relu(activation: Activation | None) -> int:
    return 0 if activation is None else FUSE_RELU


def _flags(affine: dict[int, Tensor]) -> int:
    return (USE_SCALE if SCALE in affine else 0) | (USE_SHIFT if SHIFT in affine else 0)


def _scale_and_shift(build: Builder, scale: Ref | None, shift: Ref | None) -> dict[int, Tensor]:
    found = {}
    if scale is not None:
        found[SCALE] = build.values.plain(scale)
    if shift is not None:
        found[SHIFT] = build.values.plain(shift)
    return found


def _refuse(arguments: BatchNorm, question: Question) -> str:
    if arguments.residual is not None:
        return f"{question.node.op} with a residual"
    return (
        _other_than_relu(question, arguments.activation)
        or _both_forms(question)
        or refuse_integers(arguments, question)
    )


def _refuse_backward(arguments: BatchNormBackward, question: Question) -> str:
    if arguments.second is not None:
        return f"{question.node.op} of two gradients"
    if question.output(3) is not None:
        return f"{question.node.op} with a gradient for a residual"
    return (
        _other_than_relu(question, arguments.activation)
        or _not_saved(arguments, question)
        or refuse_integers(arguments, question)
    )


def _both_forms(question: Question) -> str:
    """Refuse if a gradient reads the variance, and something else the inverse deviation."""
    if not _is_for_gradient(question.graph, question.node):
        return ""
    return read_by_others(question, 2, BatchNormBackward)


def _not_saved(arguments: BatchNormBackward, question: Question) -> str:
    """Refuse statistics that are neither batch norm's nor inputs of the graph; and a relu without
    the mask that forward makes of it."""
    given = {item.value.name for item in question.graph.inputs}
    statistics = {arguments.mean.name, arguments.inverse_deviation.name}
    if arguments.activation is None and statistics <= given:
        return ""
    return not_made_by(question, arguments.mean, BatchNorm)


def _other_than_relu(question: Question, activation: Activation | None) -> str:
    if activation is None or activation.name == "relu":
        return ""
    return f"{question.node.op} with the activation {activation.name}"


IMPLEMENTATIONS = (
    Implementation(BatchNormInference, inference, refuse_integers),
    Implementation(BatchNorm, batch_norm, _refuse),
    Implementation(BatchNormBackward, batch_norm_backward, _refuse_backward),
)
