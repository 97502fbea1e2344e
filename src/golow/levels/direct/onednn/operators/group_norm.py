"""The sums of group norm and instance norm, and of their gradients, read as the image is stored."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import columns
from golow.levels.direct.onednn.kernels import moments as kernels
from golow.levels.direct.onednn.steps.array_steps import results_of_arrays
from golow.levels.direct.onednn.steps.stored_images import as_stored
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.group_norm import (
    OF_IMAGES,
    OF_VECTORS,
    OF_X,
    GroupMoments,
    GroupNormGradients,
)
from golow.lower.plan.memory_traffic import SCRATCH


def group_moments(build: Builder, arguments: GroupMoments) -> None:
    """By two generated kernels, or by NumPy without a compiler."""
    if not build.generates:
        _with_numpy(build, arguments)
        return
    x, sizes = as_stored(build, arguments.x)
    images, channels = x.shape[:2]
    layout = Descriptor.plain((images, channels, 1, 1))
    found = [
        build.memory.new(build.current.output_name(index), layout.shape, layout) for index in (0, 1)
    ]
    size = 2 * images * channels
    between = build.memory.new(f"{build.current.name}{SCRATCH}", (size,), Descriptor.plain((size,)))
    build.steps.kernel(kernels.of_channels(*sizes), [x], [between])
    width = channels // arguments.groups
    kernel = kernels.of_groups(images * arguments.groups, width, arguments.epsilon)
    build.steps.kernel(kernel, [between], found)
    for index, tensor in enumerate(found):
        build.values.define(index, tensor)


def group_norm_gradients(build: Builder, arguments: GroupNormGradients) -> None:
    """Likewise. The gradient is brought into the order of the image."""
    if not build.generates:
        _gradients_with_numpy(build, arguments)
        return
    x, sizes = as_stored(build, arguments.x)
    outer = build.values.wanted(arguments.gradient, x.layout)
    mean, deviation = build.values.plain(arguments.mean), build.values.plain(arguments.deviation)
    images, channels = x.shape[:2]
    layout = Descriptor.plain((images, channels))
    plain, projected = (
        build.memory.new(f"{build.current.name}.{name}", layout.shape, layout)
        for name in ("plain", "projected")
    )
    of_channels = kernels.gradients_of_channels(*sizes)
    build.steps.kernel(of_channels, [outer, x, mean, deviation], [plain, projected])
    if any(map(build.current.is_read, OF_X)):
        width = channels // arguments.groups
        weights = [] if arguments.weight is None else [build.values.plain(arguments.weight)]
        kernel = kernels.gradients_of_groups(
            images * arguments.groups, width, channels, width * math.prod(x.shape[2:]),
            bool(weights),
        )  # fmt: skip
        wide = Descriptor.plain((images, channels, 1, 1))
        found = [
            build.memory.new(build.current.output_name(index), wide.shape, wide) for index in OF_X
        ]
        build.steps.kernel(kernel, [plain, projected, deviation, *weights], found)
        for index, tensor in zip(OF_X, found, strict=True):
            build.values.define(index, tensor)
    for index, sums in zip(OF_VECTORS, (projected, plain), strict=True):
        if build.current.is_read(index):
            vector = Descriptor.plain((channels,))
            result = build.memory.new(build.current.output_name(index), (channels,), vector)
            build.steps.kernel(columns.reduction("sum", 1, images, channels), [sums], [result])
            build.values.define(index, result)
    for index, sums in zip(OF_IMAGES, (projected, plain), strict=True):
        if build.current.is_read(index):
            build.values.define(index, sums)


def _with_numpy(build: Builder, arguments: GroupMoments) -> None:
    groups, epsilon = arguments.groups, arguments.epsilon

    def run(x: Any, mean: Any, deviation: Any) -> None:
        images, channels = x.shape[:2]
        rows = x.reshape(images, groups, -1).astype(np.float64)
        found = rows.mean(2), 1 / np.sqrt(rows.var(2) + epsilon)
        for result, value in zip((mean, deviation), found, strict=True):
            if result is not None:
                result[...] = value.repeat(channels // groups, 1).reshape(result.shape)

    results_of_arrays(build, run, [arguments.x])


def _gradients_with_numpy(build: Builder, arguments: GroupNormGradients) -> None:
    given = [arguments.gradient, arguments.x, arguments.mean, arguments.deviation]
    weighted = arguments.weight is not None

    def run(gradient: Any, x: Any, mean: Any, deviation: Any, *rest: Any) -> None:
        weight, results = (rest[0], rest[1:]) if weighted else (np.float64(1), rest)
        exact, inverse = gradient.astype(np.float64), deviation[:, :, 0, 0].astype(np.float64)
        plain = exact.sum((2, 3))
        projected = (exact * ((x - mean) * deviation)).sum((2, 3))
        size = math.prod(x.shape[1:]) // arguments.groups

        def of_group(sums: Any) -> Any:
            rows = (sums * weight).reshape(len(x), arguments.groups, -1)
            return (rows.sum(2) / size).repeat(rows.shape[2], 1)

        found = (
            inverse * weight,
            -of_group(projected) * inverse * inverse,
            -of_group(plain) * inverse,
            projected.sum(0), plain.sum(0), projected, plain,
        )  # fmt: skip
        for result, value in zip(results, found, strict=True):
            if result is not None:
                result[...] = value.reshape(result.shape)

    results_of_arrays(build, run, [*given, *([arguments.weight] if arguments.weight else [])])


def _refuse(arguments: GroupMoments | GroupNormGradients, question: Question) -> str:
    axes = len(question.value(arguments.x).shape)
    if axes != 4:
        return f"{question.node.op} over {axes} axes"
    return refuse_integers(arguments, question)


IMPLEMENTATIONS = (
    Implementation(GroupMoments, group_moments, _refuse),
    Implementation(GroupNormGradients, group_norm_gradients, _refuse),
)
