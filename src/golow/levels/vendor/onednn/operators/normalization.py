"""Batch norm: with running statistics, or in training with its relu and its gradients."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from golow.levels.vendor.onednn.builder import Builder, Operator, Tensor
from golow.levels.vendor.onednn.constants import (
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
from golow.levels.vendor.onednn.library import Descriptor, array, number
from golow.levels.vendor.onednn.operators.statistics import Groups, combined, corrections, groups_of
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
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
    affine = _scale_and_shift(build, scale, shift)
    flags = GLOBAL_STATISTICS | _flags(affine)
    primitive = Primitive(
        build.engine, "batch_normalization_forward", FORWARD_INFERENCE, source.layout,
        source.layout, number(float(epsilon)), flags,  # type: ignore[arg-type]
    )  # fmt: skip
    reads = {SRC: source, MEAN: build.plain(mean), VARIANCE: build.plain(variance)}
    reads |= affine
    result = build.in_place_or_new(x, source)
    build.call(primitive, reads, {DST: result})
    build.define(0, result)


# Names of what is spread over the view's channels.
SPREAD = {
    MEAN: "mean_spread",
    VARIANCE: "variance_spread",
    SCALE: "scale_spread",
    SHIFT: "shift_spread",
}


class Saved(NamedTuple):
    """What backward takes from forward: the groups, if any, and for the view's channels mean,
    variance and scale; the mask of the relu."""

    groups: Groups | None
    mean: Tensor
    variance: Tensor
    scale: Tensor | None
    mask: Tensor | None


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
    assert isinstance(momentum, float) and isinstance(epsilon, float)  # noqa: S101
    affine = _scale_and_shift(build, scale, shift)
    groups = groups_of(source)
    run = _in_one if groups is None else partial(_in_groups, groups=groups)
    mean, variance = run(build, source, affine, relu, epsilon)
    count = math.prod(source.shape) // source.shape[1]
    unbiased = momentum * count / max(count - 1, 1)
    _running(build, 3, running_mean, mean, 1 - momentum, momentum)
    _running(build, 4, running_variance, variance, 1 - momentum, unbiased)


def _in_one(
    build: Builder, source: Tensor, affine: dict[int, Tensor], relu: int, epsilon: float
) -> tuple[Tensor, Tensor]:
    flags = relu | _flags(affine)
    primitive = _forward_primitive(build, source.layout, epsilon, flags)
    result = build.new(build.output_name(0), source.shape, source.layout)
    mean, variance = (_channels(build, i, source.shape[1]) for i in (1, 2))
    writes = {DST: result, MEAN: mean, VARIANCE: variance}
    mask = _mask(build, primitive) if relu else None
    writes |= {WORKSPACE: mask} if mask is not None else {}
    build.call(primitive, {SRC: source, **affine}, writes)
    _finish(build, result, mean, variance)
    build.saved[_key(build)] = Saved(None, mean, variance, affine.get(SCALE), mask)
    return mean, variance


def _in_groups(
    build: Builder, source: Tensor, affine: dict[int, Tensor], relu: int, epsilon: float,
    groups: Groups,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    view = source._replace(descriptor=groups.layout)
    many = groups.number * source.shape[1]
    result = build.new(build.output_name(0), source.shape, source.layout)
    target = result._replace(descriptor=groups.layout)
    statistics = _forward_primitive(build, groups.layout, epsilon, 0)
    means, variances = (_channels(build, f"group_{name}", many) for name in ("means", "variances"))
    # Its result, normed by each group's own statistics, is written over by the next step.
    writes = {DST: target, MEAN: means, VARIANCE: variances}
    build.call(statistics, {SRC: view}, writes, "batch_statistics")

    mean, variance = (_channels(build, i, source.shape[1]) for i in (1, 2))
    spread = {name: _channels(build, SPREAD[name], many) for name in (MEAN, VARIANCE, *affine)}

    def combine(means: Any, variances: Any, *rest: Any) -> None:
        given, (mean, variance), views = rest[: len(affine)], rest[-2:], rest[len(affine) : -2]
        mean[...], variance[...] = combined(groups, means, variances)
        for channels, into in zip((mean, variance, *given), views, strict=True):
            groups.spread(channels, into)

    build.array_call(
        combine, [means, variances, *affine.values()], [*spread.values(), mean, variance]
    )
    flags = relu | GLOBAL_STATISTICS | _flags(affine)
    primitive = _forward_primitive(build, groups.layout, epsilon, flags)
    mask = _mask(build, primitive) if relu else None
    build.call(
        primitive, {SRC: view, **spread}, {DST: target, **({WORKSPACE: mask} if mask else {})}
    )
    _finish(build, result, mean, variance)
    build.saved[_key(build)] = Saved(
        groups, spread[MEAN], spread[VARIANCE], spread.get(SCALE), mask
    )
    return mean, variance


def _forward_primitive(build: Builder, layout: Descriptor, epsilon: float, flags: int) -> Primitive:
    return Primitive(
        build.engine, "batch_normalization_forward", FORWARD_TRAINING, layout, layout,
        number(epsilon), flags,
    )  # fmt: skip


def _channels(build: Builder, what: int | str, count: int) -> Tensor:
    """A number a channel: the node's value of that index, or something of its own."""
    name = build.output_name(what) if isinstance(what, int) else f"{build.node.name}_{what}"
    return build.new(name, (count,), Descriptor.plain((count,)))


def _mask(build: Builder, primitive: Primitive) -> Tensor:
    mask = primitive.descriptor(WORKSPACE)
    return build.new(f"{build.output_name(0)}_mask", (mask.bytes,), mask)


def _finish(build: Builder, *results: Tensor) -> None:
    for index, tensor in enumerate(results):
        build.define(index, tensor)


def _key(build: Builder) -> str:
    """Forward and backward know the norm by its mean, which both have."""
    return build.output_name(1)


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
        gradient, _, x, scale, mean, variance, epsilon, _ = node.arguments
    else:
        gradient, x, scale, _, _, mean, variance, training, epsilon, _ = node.arguments
        if training is not True:
            raise build.unsupported("the gradient of batch norm with running statistics")
    assert isinstance(mean, Ref) and isinstance(epsilon, float)  # noqa: S101
    saved = build.saved[mean.name]
    source = build.tensor(x)
    outer = build.wanted(gradient, source.layout)
    layout = source.layout if saved.groups is None else saved.groups.layout
    source, inner = (
        tensor._replace(descriptor=layout)
        for tensor in (source, build.in_place_or_new(gradient, outer))
    )
    # The sums over the pixels are the gradients of scale and shift, and needed without them too.
    flags = relu | USE_SCALE | USE_SHIFT
    eps = number(epsilon)
    hint = _forward_primitive(build, layout, epsilon, flags)
    primitive = Primitive(
        build.engine, "batch_normalization_backward", BACKWARD, layout, layout, layout, eps,
        flags, hint.description,
    )  # fmt: skip
    reads = {
        SRC: source,
        DIFF_DST: outer._replace(descriptor=layout),
        MEAN: saved.mean,
        VARIANCE: saved.variance,
        SCALE: saved.scale or _ones(build, saved.mean.shape[0]),
    }
    if saved.mask is not None:
        reads[WORKSPACE] = saved.mask
    sums = [
        _channels(build, 1 + index if saved.groups is None else name, saved.mean.shape[0])
        for index, name in enumerate(("group_sums_normed", "group_sums"))
    ]
    build.call(primitive, reads, {DIFF_SRC: inner, DIFF_SCALE: sums[0], DIFF_SHIFT: sums[1]})
    if saved.groups is not None:
        sums = _corrected(build, saved, source, inner, sums, mean, variance, scale, epsilon)
    result = inner._replace(descriptor=build.tensor(x).layout)
    _finish(build, result, *(sums if scale is not None else ()))


def _ones(build: Builder, count: int) -> Tensor:
    return build.constant(f"{build.node.name}_ones", np.ones(count))


def _corrected(
    build: Builder, saved: Saved, source: Tensor, inner: Tensor, sums: list[Tensor],
    mean: Argument, variance: Argument, scale: Argument, epsilon: float,
) -> list[Tensor]:  # fmt: skip
    """Make the groups' gradients those of the whole: inner += level + slope x."""
    groups = saved.groups
    assert groups is not None  # noqa: S101
    count = saved.mean.shape[0]
    level, slope = (_channels(build, name, count) for name in ("level", "slope"))
    totals = [_channels(build, index, count // groups.number) for index in (1, 2)]
    given = [build.tensor(mean), build.tensor(variance)]
    given += [build.plain(scale)] if scale is not None else []

    def correct(normed: Any, ones: Any, mean: Any, variance: Any, *rest: Any) -> None:
        *given, level, slope, total_normed, total_ones = rest
        found = corrections(
            groups, (ones, normed), mean, variance, given[0] if given else None, epsilon
        )
        level[...], slope[...], total_ones[...], total_normed[...] = found

    build.array_call(correct, [*sums, *given], [level, slope, *totals])
    primitive = Primitive(
        build.engine, "binary", BINARY_MUL, groups.wide, groups.narrow, groups.wide,
        post_ops=[PostOp("add", descriptor=groups.narrow), PostOp("sum")],
    )  # fmt: skip
    reads = {
        SRC: source._replace(descriptor=groups.wide),
        SRC_1: slope._replace(descriptor=groups.narrow),
        POST_OP_STRIDE | SRC_1: level._replace(descriptor=groups.narrow),
    }
    target = inner._replace(descriptor=groups.wide)
    build.call(primitive, reads, {DST: target}, "correction")
    return totals


def _flags(affine: dict[int, Tensor]) -> int:
    return (USE_SCALE if SCALE in affine else 0) | (USE_SHIFT if SHIFT in affine else 0)


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
