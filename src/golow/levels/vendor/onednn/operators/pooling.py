"""Pooling. Where an adaptive one's windows are uneven it is a product with a fixed matrix."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from golow.levels.vendor.onednn.builder import Builder, Operator, Tensor
from golow.levels.vendor.onednn.constants import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    POOLING_AVERAGE,
    POOLING_AVERAGE_EXCLUDING,
    POOLING_MAX,
    SRC,
    WEIGHTS,
    WORKSPACE,
)
from golow.levels.vendor.onednn.library import Descriptor, dims
from golow.levels.vendor.onednn.primitive import Primitive
from golow.lower.graph import Argument, Node, Ref
from golow.lower.rewriting import given, pair


class Window(NamedTuple):
    """Algorithm, strides, kernel, dilations, padding before and after, as oneDNN takes them."""

    algorithm: int
    strides: Any
    kernel: Any
    dilations: Any
    before: Any
    after: Any


def max_pool(build: Builder, node: Node) -> None:
    """The largest of each window; in training also where it was."""
    x, kernel, stride, padding, dilation, _ = given(
        node, "self kernel_size stride padding dilation ceil_mode", (), (0,), (1,), False
    )
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    window = _window(
        POOLING_MAX, build.tensor(x).shape, output.shape, kernel, stride, padding, dilation
    )
    result, mask = _forward(build, build.tensor(x), output.shape, window)
    build.define(0, result)
    if mask is not None and len(node.outputs) > 1 and node.outputs[1] is not None:
        build.workspaces[build.output_name(1)] = mask


def max_pool_backward(build: Builder, node: Node) -> None:
    """The gradient goes to where the largest was."""
    gradient, x, kernel, stride, padding, dilation, _, indices = node.arguments
    assert isinstance(indices, Ref)  # noqa: S101
    source, outer = build.tensor(x), build.tensor(gradient)
    window = _window(POOLING_MAX, source.shape, outer.shape, kernel, stride, padding, dilation)
    _backward(build, gradient, source, window, build.workspaces[indices.name])


def average_pool(build: Builder, node: Node) -> None:
    """The mean of each window."""
    x, kernel, stride, padding, ceil, include, divisor = given(
        node,
        "self kernel_size stride padding ceil_mode count_include_pad divisor_override",
        (), (0,), False, True, None,
    )  # fmt: skip
    output = node.outputs[0]
    assert output is not None  # noqa: S101
    algorithm = _averaging(build, ceil, include, divisor)
    window = _window(algorithm, build.tensor(x).shape, output.shape, kernel, stride, padding, (1,))
    build.define(0, _forward(build, build.tensor(x), output.shape, window)[0])


def average_pool_backward(build: Builder, node: Node) -> None:
    """The gradient spreads evenly over its window."""
    gradient, x, kernel, stride, padding, ceil, include, divisor = node.arguments
    algorithm = _averaging(build, ceil, include, divisor)
    source, outer = build.tensor(x), build.tensor(gradient)
    window = _window(algorithm, source.shape, outer.shape, kernel, stride, padding, (1,))
    _backward(build, gradient, source, window, None)


def adaptive_average_pool(build: Builder, node: Node) -> None:
    """The mean over windows that cover the image, so many as were asked for."""
    x, output = build.tensor(node.arguments[0]), node.outputs[0]
    assert output is not None  # noqa: S101
    image, size = x.shape[2:], output.shape[2:]
    if _even(image, size):
        build.define(0, _forward(build, x, output.shape, _even_window(image, size))[0])
    else:
        matrix = pooling_matrix(image, size)
        build.define(0, _by_matrix(build, node.arguments[0], output.shape, matrix))


def adaptive_average_pool_backward(build: Builder, node: Node) -> None:
    """The gradient of `adaptive_average_pool`."""
    gradient, x = node.arguments
    shape = build.tensor_shape(x)
    image, size = shape[2:], build.tensor_shape(gradient)[2:]
    if _even(image, size):
        _backward(build, gradient, build.tensor(x), _even_window(image, size), None)
    else:
        matrix = np.ascontiguousarray(pooling_matrix(image, size).T)
        build.define(0, _by_matrix(build, gradient, shape, matrix))


def pooling_matrix(image: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
    """[H W, OH OW]: the weight of each pixel in each window of an adaptive average pooling.

    Window i of n over m pixels reaches from floor(i m / n) to ceil((i + 1) m / n), as PyTorch
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


def _by_matrix(
    build: Builder, argument: Argument, shape: tuple[int, ...], matrix: np.ndarray
) -> Tensor:
    planes = shape[0] * shape[1]
    source = build.plain(argument)
    flat = source._replace(descriptor=Descriptor.plain((planes, matrix.shape[0])))
    weights = build.constant(f"{build.node.name}_matrix", matrix)
    target = Descriptor.plain((planes, matrix.shape[1]))
    result = build.new(build.output_name(), shape, target)
    primitive = Primitive(build.engine, "matmul", flat.layout, weights.layout, None, target)
    build.call(primitive, {SRC: flat, WEIGHTS: weights}, {DST: result})
    return result._replace(descriptor=Descriptor.plain(shape))


def _even(image: tuple[int, ...], size: tuple[int, ...]) -> bool:
    return all(m % n == 0 for m, n in zip(image, size, strict=True))


def _even_window(image: tuple[int, ...], size: tuple[int, ...]) -> Window:
    sides = tuple(m // n for m, n in zip(image, size, strict=True))
    nothing = dims((0, 0))
    return Window(POOLING_AVERAGE, dims(sides), dims(sides), nothing, nothing, nothing)


def _averaging(build: Builder, ceil: Argument, include: Argument, divisor: Argument) -> int:
    if divisor is not None or (ceil is True and include is True):
        raise build.unsupported(
            "average pooling with a divisor, or with padding that ceil_mode adds"
        )
    return POOLING_AVERAGE if include is True else POOLING_AVERAGE_EXCLUDING


def _window(
    algorithm: int, source: tuple[int, ...], target: tuple[int, ...], kernel: Argument,
    stride: Argument, padding: Argument, dilation: Argument,
) -> Window:  # fmt: skip
    kernel, padding, dilation = pair(kernel), pair(padding), pair(dilation)
    stride = pair(stride) if stride not in ((), None) else kernel
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    # What the last window needs beyond the image, which ceil_mode makes more than the padding.
    after = [
        max(0, (out - 1) * step + size - image - before)
        for out, step, size, image, before in zip(
            target[2:], stride, reach, source[2:], padding, strict=True
        )
    ]
    holes = [d - 1 for d in dilation]
    return Window(algorithm, dims(stride), dims(kernel), dims(holes), dims(padding), dims(after))


def _forward(
    build: Builder, x: Tensor, shape: tuple[int, ...], window: Window
) -> tuple[Tensor, Tensor | None]:
    primitive = _forward_primitive(build, x.layout, shape, window)
    result = build.new(build.output_name(), shape, primitive.descriptor(DST))
    writes = {DST: result}
    mask = primitive.descriptor(WORKSPACE)
    if mask.bytes:
        writes[WORKSPACE] = build.new(f"{build.output_name()}_mask", (mask.bytes,), mask)
    build.call(primitive, {SRC: x}, writes)
    return result, writes.get(WORKSPACE)


def _forward_primitive(
    build: Builder, source: Descriptor, shape: tuple[int, ...], window: Window
) -> Primitive:
    kind = FORWARD_INFERENCE if build.graph.mode == "infer" else FORWARD_TRAINING
    return Primitive(
        build.engine, "pooling_forward", kind, window.algorithm, source,
        Descriptor.tagged(shape), *window[1:],
    )  # fmt: skip


def _backward(
    build: Builder, gradient: Argument, source: Tensor, window: Window, mask: Tensor | None
) -> None:
    shape = build.tensor_shape(gradient)
    forward = _forward_primitive(build, source.layout, shape, window)
    primitive = Primitive(
        build.engine, "pooling_backward", window.algorithm, source.layout,
        forward.descriptor(DST), *window[1:], forward.description,
    )  # fmt: skip
    reads = {DIFF_DST: build.wanted(gradient, primitive.descriptor(DIFF_DST))}
    if mask is not None:
        reads[WORKSPACE] = mask
    inner = build.new(build.output_name(), source.shape, primitive.descriptor(DIFF_SRC))
    build.call(primitive, reads, {DIFF_SRC: inner})
    build.define(0, inner)


OPERATORS: dict[str, Operator] = {
    "aten.max_pool2d.default": max_pool,
    "aten.max_pool2d_with_indices.default": max_pool,
    "aten.max_pool2d_with_indices_backward.default": max_pool_backward,
    "aten.avg_pool2d.default": average_pool,
    "aten.avg_pool2d_backward.default": average_pool_backward,
    "aten.adaptive_avg_pool2d.default": adaptive_average_pool,
    "aten._adaptive_avg_pool2d.default": adaptive_average_pool,
    "aten._adaptive_avg_pool2d_backward.default": adaptive_average_pool_backward,
}
