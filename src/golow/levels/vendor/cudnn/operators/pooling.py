"""Pooling of images, forward and backward."""

from __future__ import annotations

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.kernels import pooling as kernels
from golow.levels.vendor.cudnn.kernels.pooling import Images, Window
from golow.levels.vendor.cudnn.layouts import Layout
from golow.lower.graph import Argument, Node, Ref
from golow.lower.rewriting import given, pair


def max_pool(build: Builder, node: Node) -> None:
    """The largest of each window; in training also where it was."""
    x, kernel, stride, padding, dilation, _ = given(
        node, "self kernel_size stride padding dilation ceil_mode", (), (0,), (1,), False
    )
    source = build.image(x)
    result = build.new(build.output().name, build.output().shape, source.layout)
    taps = len(node.outputs) > 1 and node.outputs[1] is not None
    sizes = _sizes(source.shape, result.shape)
    window = _window(kernel, stride, padding, dilation)
    writes = [result]
    if taps:
        layout = source.layout._replace(dtype="uint8")
        writes.append(build.new(build.output(1).name, result.shape, layout))
        build.saved[build.output(1).name] = writes[1]
    build.kernel(kernels.max_pool(source.dtype, sizes, window, taps), [source], writes)
    build.define(0, result)


def max_pool_backward(build: Builder, node: Node) -> None:
    """The gradient goes to where the largest was."""
    gradient, x, kernel, stride, padding, dilation, _, indices = node.arguments
    assert isinstance(indices, Ref)  # noqa: S101
    outer, shape = build.image(gradient), build.value(x).shape
    result = build.new(build.output().name, shape, outer.layout)
    window = _window(kernel, stride, padding, dilation)
    made = kernels.max_pool_backward(outer.dtype, _sizes(shape, outer.shape), window)
    build.kernel(made, [outer, build.saved[indices.name]], [result])
    build.define(0, result)


def average_pool(build: Builder, node: Node) -> None:
    """The mean of each window."""
    x, kernel, stride, padding, _, include, divisor = given(
        node,
        "self kernel_size stride padding ceil_mode count_include_pad divisor_override",
        (), (0,), False, True, None,
    )  # fmt: skip
    source = build.image(x)
    result = build.new(build.output().name, build.output().shape, source.layout)
    build.kernel(
        kernels.average_pool(
            source.dtype,
            _sizes(source.shape, result.shape),
            _window(kernel, stride, padding, (1,)),
            include is True,
            _divisor(divisor),
        ),
        [source],
        [result],
    )
    build.define(0, result)


def average_pool_backward(build: Builder, node: Node) -> None:
    """The gradient spreads evenly over its window."""
    gradient, x, kernel, stride, padding, _, include, divisor = node.arguments
    outer, shape = build.image(gradient), build.value(x).shape
    result = build.new(build.output().name, shape, outer.layout)
    build.kernel(
        kernels.average_pool_backward(
            outer.dtype,
            _sizes(shape, outer.shape),
            _window(kernel, stride, padding, (1,)),
            include is True,
            _divisor(divisor),
        ),
        [outer],
        [result],
    )
    build.define(0, result)


def adaptive_average_pool(build: Builder, node: Node) -> None:
    """The mean over windows that cover the image, so many as were asked for."""
    source = build.image(node.arguments[0])
    result = build.new(build.output().name, build.output().shape, source.layout)
    sizes = _sizes(source.shape, result.shape)
    build.kernel(kernels.adaptive_average_pool(source.dtype, sizes), [source], [result])
    build.define(0, result)


def adaptive_average_pool_backward(build: Builder, node: Node) -> None:
    """The gradient of `adaptive_average_pool`."""
    gradient, x = node.arguments
    outer, shape = build.image(gradient), build.value(x).shape
    layout = Layout(outer.dtype, "channels_last", shape[1])
    result = build.new(build.output().name, shape, layout)
    sizes = _sizes(shape, outer.shape)
    build.kernel(kernels.adaptive_average_pool_backward(outer.dtype, sizes), [outer], [result])
    build.define(0, result)


def _sizes(source: tuple[int, ...], target: tuple[int, ...]) -> Images:
    images, channels, height, width = source
    return Images(images, height, width, channels, *target[2:])


def _window(kernel: Argument, stride: Argument, padding: Argument, dilation: Argument) -> Window:
    size = pair(kernel)
    step = pair(stride) if stride not in ((), None) else size
    return Window(size, step, pair(padding), pair(dilation))


def _divisor(divisor: Argument) -> int:
    return divisor if isinstance(divisor, int) else 0


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
