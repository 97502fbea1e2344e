"""The moments of group norm and instance norm, read as the image lies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn.arrays import results_of_arrays
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.constants import CHANNELS_LAST
from golow.levels.vendor.onednn.kernels import moments as kernels
from golow.levels.vendor.onednn.library import Descriptor, channel_block
from golow.levels.vendor.onednn.steps import Tensor
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.moving import SCRATCH
from golow.lower.operators.group_norm import GroupMoments


def group_moments(build: Builder, arguments: GroupMoments) -> None:
    """By two generated kernels, or by NumPy without a compiler."""
    if not build.generates:
        _with_numpy(build, arguments)
        return
    x, sizes = _as_it_lies(build, arguments)
    images, channels = x.shape[:2]
    layout = Descriptor.plain((images, channels, 1, 1))
    found = [build.new(build.output_name(index), layout.shape, layout) for index in (0, 1)]
    size = 2 * images * channels
    between = build.new(f"{build.node.name}{SCRATCH}", (size,), Descriptor.plain((size,)))
    build.kernel(kernels.of_channels(*sizes), [x], [between])
    width = channels // arguments.groups
    kernel = kernels.of_groups(images * arguments.groups, width, arguments.epsilon)
    build.kernel(kernel, [between], found)
    for index, tensor in enumerate(found):
        build.define(index, tensor)


def _as_it_lies(build: Builder, arguments: GroupMoments) -> tuple[Tensor, tuple[int, int, int]]:
    """The image, and its sizes as [outer, pixels, columns]: channels in blocks, last, or first."""
    x = build.tensor(arguments.x)
    images, channels, *image = x.shape
    pixels, block = math.prod(image), channel_block()
    if channels % block.size == 0 and x.layout == Descriptor.tagged(x.shape, block.tag):
        return x, (images * channels // block.size, pixels, block.size)
    if x.layout == Descriptor.tagged(x.shape, CHANNELS_LAST):
        return x, (images, pixels, channels)
    return build.plain(arguments.x), (images * channels, pixels, 1)


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


def _refuse(arguments: GroupMoments, question: Question) -> str:
    axes = len(question.value(arguments.x).shape)
    if axes != 4:
        return f"{question.node.op} over {axes} axes"
    return refuse_integers(arguments, question)


IMPLEMENTATIONS = (Implementation(GroupMoments, group_moments, _refuse),)
