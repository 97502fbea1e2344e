"""The mean of each window of an image, and its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.refusing import beyond_kernel
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.pooling import (
    AVERAGES,
    Images,
    Source,
    Window,
    axes_of,
    backward,
    forward,
)
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.average_pool import AveragePool, AveragePoolBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

SOURCE = Source(Path(__file__).with_suffix(".cu"), AVERAGES)


def average_pool(build: Builder, arguments: AveragePool) -> None:
    """The mean of each window."""
    source = build.values.image(arguments.x)
    output = build.current.output()
    result = build.memory.new(output.name, output.shape, source.layout)
    kernel = _forward(arguments, source.dtype, Images.between(source.shape, result.shape))
    build.steps.kernel(kernel, [source], [result])
    build.values.define(0, result)


def average_pool_backward(build: Builder, arguments: AveragePoolBackward) -> None:
    """Spread each gradient evenly over its window."""
    outer, shape = build.values.image(arguments.gradient), build.current.value(arguments.x).shape
    result = build.memory.new(build.current.output().name, shape, outer.layout)
    kernel = backward_kernel(
        outer.dtype,
        Images.between(shape, outer.shape),
        _window(arguments),
        arguments.with_padding,
        arguments.divisor or 0,
    )
    build.steps.kernel(kernel, [outer], [result])
    build.values.define(0, result)


def _forward(arguments: AveragePool, dtype: str, sizes: Images) -> Kernel:
    return forward_kernel(
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


# ---------------------------------------------------------------- kernels


def forward_kernel(
    dtype: str, images: Images, window: Window, count_include_pad: bool, divisor_override: int = 0
) -> Kernel:
    """Pointers: x -> y. divisor_override: 0 if there is none. Raises ValueError for a dilation."""
    scalars = (*axes_of(images, _undilated(window)), int(count_include_pad), divisor_override)
    return forward(SOURCE, "average_pool", dtype, images, scalars)


def backward_kernel(
    dtype: str, images: Images, window: Window, count_include_pad: bool, divisor_override: int = 0
) -> Kernel:
    """Pointers: dy -> dx."""
    scalars = (*axes_of(images, _undilated(window)), int(count_include_pad), divisor_override)
    return backward(SOURCE, "average_pool_backward", dtype, images, scalars)


def _undilated(window: Window) -> Window:
    if window.dilation != (1, 1):
        raise ValueError(f"average pooling has no dilation: {window.dilation}")
    return window


IMPLEMENTATIONS = (
    Implementation(AveragePool, average_pool, _refuse),
    Implementation(AveragePoolBackward, average_pool_backward),
)
