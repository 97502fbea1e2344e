"""The mean of each window of an image, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels import Kernel, pooling
from golow.levels.vendor.cudnn.kernels.pooling import Images, Window
from golow.levels.vendor.cudnn.refusing import beyond_kernel, not_floating
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.average_pool import AveragePool, AveragePoolBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def average_pool(build: Builder, arguments: AveragePool) -> None:
    """The mean of each window."""
    source = build.image(arguments.x)
    result = build.new(build.output().name, build.output().shape, source.layout)
    kernel = _forward(arguments, source.dtype, Images.between(source.shape, result.shape))
    build.kernel(kernel, [source], [result])
    build.define(0, result)


def average_pool_backward(build: Builder, arguments: AveragePoolBackward) -> None:
    """The gradient spreads evenly over its window."""
    outer, shape = build.image(arguments.gradient), build.value(arguments.x).shape
    result = build.new(build.output().name, shape, outer.layout)
    kernel = pooling.average_pool_backward(
        outer.dtype,
        Images.between(shape, outer.shape),
        _window(arguments),
        arguments.with_padding,
        arguments.divisor or 0,
    )
    build.kernel(kernel, [outer], [result])
    build.define(0, result)


def _forward(arguments: AveragePool, dtype: str, sizes: Images) -> Kernel:
    return pooling.average_pool(
        dtype, sizes, _window(arguments), arguments.with_padding, arguments.divisor or 0
    )


def _window(arguments: AveragePool | AveragePoolBackward) -> Window:
    return Window(arguments.kernel, arguments.stride, arguments.padding)


def _refuse(arguments: AveragePool, question: Question) -> str:
    output, shape = question.output(), question.value(arguments.x).shape
    sizes = Images.between(shape, shape if output is None else output.shape)
    return not_floating(question, arguments.x) or beyond_kernel(
        question, lambda: _forward(arguments, "float32", sizes)
    )


IMPLEMENTATIONS = (
    Implementation(AveragePool, average_pool, _refuse),
    Implementation(AveragePoolBackward, average_pool_backward),
)
