"""Average pooling to a given size. With windows of different sizes, it is a product with a fixed
matrix."""

from __future__ import annotations

import math

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.constants import (
    CHANNELS_LAST,
    DST,
    POOLING_AVERAGE,
    SRC,
    WEIGHTS,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block, dims
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps import pooling
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.pooling import Window
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)


def pool(build: Builder, arguments: AdaptiveAveragePool) -> None:
    """The mean over windows that cover the image, for a given size of the result."""
    image, size = build.current.value(arguments.x).shape[2:], arguments.size
    if _even(image, size):
        x = build.values.tensor(arguments.x)
        result = pooling.forward(build, x, build.current.output().shape, _even_window(image, size))
        build.values.define(0, result.tensor)
    else:
        _by_matrix(build, arguments.x, pooling_matrix(image, size))


def backward(build: Builder, arguments: AdaptiveAveragePoolBackward) -> None:
    """The gradient of `pool`."""
    shape = arguments.shape
    image, size = shape[2:], build.current.value(arguments.gradient).shape[2:]
    if _even(image, size):
        layout = _layout_like(build, shape)
        pooling.backward(build, arguments.gradient, shape, layout, _even_window(image, size), None)
    else:
        _by_matrix(build, arguments.gradient, np.ascontiguousarray(pooling_matrix(image, size).T))


def _layout_like(build: Builder, shape: tuple[int, ...]) -> Descriptor:
    """Return a layout for an image of which backward knows only the shape: that of the latest value
    with this shape, because the next step often combines the two."""
    plain = Descriptor.plain(shape)
    known = [
        plain,
        *(Descriptor.tagged(shape, tag) for tag in (CHANNELS_LAST, channel_block().tag)),
    ]
    return next((layout for layout in build.values.layouts_made(shape) if layout in known), plain)


def pooling_matrix(image: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
    """Return [H W, OH OW]: the weight of each pixel in each window of an adaptive average pooling.

    Window i of n over m pixels goes from floor(i m / n) to ceil((i + 1) m / n), as PyTorch
    documents for AdaptiveAvgPool2d.
    """
    rows, columns = (_shares(m, n) for m, n in zip(image, size, strict=True))
    matrix: np.ndarray = np.einsum("hi,wj->hwij", rows, columns)
    return matrix.reshape(math.prod(image), math.prod(size))


def _shares(pixels: int, windows: int) -> np.ndarray:
    shares = np.zeros((pixels, windows))
    for i in range(windows):
        start, stop = i * pixels // windows, -(-(i + 1) * pixels // windows)
        shares[start:stop, i] = 1 / (stop - start)
    return shares


def _by_matrix(build: Builder, reference: Ref, matrix: np.ndarray) -> None:
    shape = build.current.output().shape
    planes = shape[0] * shape[1]
    source = build.values.plain(reference)
    flat = source._replace(descriptor=Descriptor.plain((planes, matrix.shape[0])))
    weights = build.memory.constant(f"{build.current.name}_matrix", matrix)
    target = Descriptor.plain((planes, matrix.shape[1]))
    result: Tensor = build.memory.new(build.current.output_name(), shape, target)
    primitive = Primitive(build.engine, "matmul", flat.layout, weights.layout, None, target)
    build.steps.call(primitive, {SRC: flat, WEIGHTS: weights}, {DST: result})
    build.values.define(0, result._replace(descriptor=Descriptor.plain(shape)))


def _even(image: tuple[int, ...], size: tuple[int, ...]) -> bool:
    return all(m % n == 0 for m, n in zip(image, size, strict=True))


def _even_window(image: tuple[int, ...], size: tuple[int, ...]) -> Window:
    sides = tuple(m // n for m, n in zip(image, size, strict=True))
    nothing = dims((0, 0))
    return Window(POOLING_AVERAGE, dims(sides), dims(sides), nothing, nothing, nothing)


IMPLEMENTATIONS = (
    Implementation(AdaptiveAveragePool, pool, refuse_integers),
    Implementation(AdaptiveAveragePoolBackward, backward, refuse_integers),
)
