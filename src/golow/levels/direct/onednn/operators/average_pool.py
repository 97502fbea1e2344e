"""Average pooling of an image, and its gradient."""

from __future__ import annotations

import math

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.constants import (
    BINARY_MUL,
    POOLING_AVERAGE,
    POOLING_AVERAGE_EXCLUDING,
)
from golow.levels.direct.onednn.build import updating
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps import pooling
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.pooling import Window, window
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.average_pool import AveragePool, AveragePoolBackward


def average_pool(build: Builder, arguments: AveragePool) -> None:
    """The mean of each window."""
    x, shape = build.values.tensor(arguments.x), build.current.output().shape
    result = pooling.forward(build, x, shape, _window(arguments, x.shape, shape)).tensor
    factor = _factor(arguments, x.shape, shape)
    if factor is not None:
        _scale(build, result, factor, into=result)
    build.values.define(0, result)


def average_pool_backward(build: Builder, arguments: AveragePoolBackward) -> None:
    """Spread each gradient evenly over its window."""
    x, outer = build.values.tensor(arguments.x), build.current.value(arguments.gradient).shape
    factor = _factor(arguments, x.shape, outer)
    scaled = None
    if factor is not None:
        given = build.values.tensor(arguments.gradient)
        scaled = build.memory.new(f"{build.current.name}_scaled", given.shape, given.layout)
        _scale(build, given, factor, into=scaled)
    spread = _window(arguments, x.shape, outer)
    pooling.backward(build, arguments.gradient, x.shape, x.layout, spread, None, scaled)


def _window(
    arguments: AveragePool | AveragePoolBackward, source: tuple[int, ...], target: tuple[int, ...]
) -> Window:
    """Without padding, what ceil adds beyond the image does not count: it is excluded."""
    counts = arguments.divisor is not None or _counts_padding(arguments)
    algorithm = POOLING_AVERAGE if counts else POOLING_AVERAGE_EXCLUDING
    kernel, stride, padding = arguments.kernel, arguments.stride, arguments.padding
    return window(algorithm, source, target, kernel, stride, padding)


def _counts_padding(arguments: AveragePool | AveragePoolBackward) -> bool:
    return arguments.with_padding and any(arguments.padding)


def _factor(
    arguments: AveragePool | AveragePoolBackward, source: tuple[int, ...], target: tuple[int, ...]
) -> np.ndarray | None:
    """[1, 1, OH, OW]: the library divides the sum of a window by all of its places; what makes of
    this the mean that is wanted. None where it is that."""
    places = math.prod(arguments.kernel)
    if arguments.divisor is not None:
        return np.full((1, 1, *target[2:]), places / arguments.divisor)
    if not (arguments.ceil and _counts_padding(arguments)):
        return None
    axes = zip(
        source[2:], target[2:], arguments.kernel, arguments.stride, arguments.padding, strict=True
    )
    # A window that ceil lets begin ends with the padding, beyond which nothing counts.
    rows, columns = (
        np.minimum(kernel, size + 2 * padding - np.arange(windows) * stride)
        for size, windows, kernel, stride, padding in axes
    )
    return (places / np.outer(rows, columns)).reshape(1, 1, *target[2:])


def _scale(build: Builder, images: Tensor, factor: np.ndarray, into: Tensor) -> None:
    factors = build.memory.constant(f"{build.current.name}_factors", factor)
    updating.combine(build, BINARY_MUL, images, factors, into, "scale")


IMPLEMENTATIONS = (
    Implementation(AveragePool, average_pool, refuse_integers),
    Implementation(AveragePoolBackward, average_pool_backward, refuse_integers),
)
