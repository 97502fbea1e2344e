"""Average pooling to a given size, and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels import pooling
from golow.levels.vendor.cudnn.kernels.pooling import Images
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.refusing import beyond_kernel, not_floating
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def adaptive_average_pool(build: Builder, arguments: AdaptiveAveragePool) -> None:
    """The mean over windows that cover the image, so many as were asked for."""
    source = build.image(arguments.x)
    result = build.new(build.output().name, build.output().shape, source.layout)
    sizes = Images.between(source.shape, result.shape)
    build.kernel(pooling.adaptive_average_pool(source.dtype, sizes), [source], [result])
    build.define(0, result)


def adaptive_average_pool_backward(build: Builder, arguments: AdaptiveAveragePoolBackward) -> None:
    """The gradient of `adaptive_average_pool`."""
    outer, shape = build.image(arguments.gradient), arguments.shape
    layout = Layout(outer.dtype, "channels_last", shape[1])
    result = build.new(build.output().name, shape, layout)
    sizes = Images.between(shape, outer.shape)
    kernel = pooling.adaptive_average_pool_backward(outer.dtype, sizes)
    build.kernel(kernel, [outer], [result])
    build.define(0, result)


def _refuse(arguments: AdaptiveAveragePool, question: Question) -> str:
    shape = question.value(arguments.x).shape
    sizes = Images.between(shape, (*shape[:2], *arguments.size))
    return not_floating(question, arguments.x) or beyond_kernel(
        question, lambda: pooling.adaptive_average_pool("float32", sizes)
    )


IMPLEMENTATIONS = (
    Implementation(AdaptiveAveragePool, adaptive_average_pool, _refuse),
    Implementation(AdaptiveAveragePoolBackward, adaptive_average_pool_backward),
)
