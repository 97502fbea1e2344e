"""Average pooling to a given size, and its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.refusing import beyond_kernel
from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import rows_of
from golow.levels.direct.cudnn.shared_kernels.pooling import (
    AVERAGES,
    Images,
    Source,
    backward,
    forward,
    launched,
    vectors,
)
from golow.levels.direct.cudnn.shared_kernels.reduction import reduction
from golow.levels.direct.cudnn.steps.sums import add_up
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

SOURCE = Source(Path(__file__).with_suffix(".cu"), AVERAGES)


def adaptive_average_pool(build: Builder, arguments: AdaptiveAveragePool) -> None:
    """The mean over windows that cover the image, for a given size of the result."""
    source = build.values.image(arguments.x)
    if arguments.size == (1, 1):
        images, channels, height, width = source.shape
        pixels = height * width
        add_up(build, source, (images, pixels, channels), 0, 1 / pixels)
        return
    output = build.current.output()
    result = build.memory.new(output.name, output.shape, source.layout)
    sizes = Images.between(source.shape, result.shape)
    build.steps.kernel(forward_kernel(source.dtype, sizes), [source], [result])
    build.values.define(0, result)


def adaptive_average_pool_backward(build: Builder, arguments: AdaptiveAveragePoolBackward) -> None:
    """The gradient of `adaptive_average_pool`."""
    outer, shape = build.values.image(arguments.gradient), arguments.shape
    layout = Layout(outer.dtype, "channels_last", shape[1])
    result = build.memory.new(build.current.output().name, shape, layout)
    sizes = Images.between(shape, outer.shape)
    kernel = backward_kernel(outer.dtype, sizes)
    build.steps.kernel(kernel, [outer], [result])
    build.values.define(0, result)


def _refuse(arguments: AdaptiveAveragePool, question: Question) -> str:
    shape = question.value(arguments.x).shape
    sizes = Images.between(shape, (*shape[:2], *arguments.size))
    if arguments.size == (1, 1):
        return not_floating(question, arguments.x) or beyond_kernel(
            question, lambda: reduction("float32", "float32", shape[0], 1, shape[1])
        )
    return not_floating(question, arguments.x) or beyond_kernel(
        question, lambda: forward_kernel("float32", sizes)
    )


# ---------------------------------------------------------------- kernels


def forward_kernel(dtype: str, images: Images) -> Kernel:
    """Pointers: x -> y, of any size; PyTorch's windows. The mean of a whole image is a sum."""
    return forward(SOURCE, "adaptive_average_pool", dtype, images, _sizes(images))


def backward_kernel(dtype: str, images: Images) -> Kernel:
    """Pointers: dy -> dx."""
    if images.out_h == images.out_w == 1:
        groups, each = vectors(dtype, images)
        pixels = images.h * images.w
        grid, block = rows_of(images.n, pixels * groups)
        name = f"global_average_pool_backward<{C_TYPES[dtype]}, {each}>"
        return launched(SOURCE, name, grid, block, (groups, pixels))
    return backward(SOURCE, "adaptive_average_pool_backward", dtype, images, _sizes(images))


def _sizes(images: Images) -> tuple[int, ...]:
    return images.h, images.out_h, images.w, images.out_w


IMPLEMENTATIONS = (
    Implementation(AdaptiveAveragePool, adaptive_average_pool, _refuse),
    Implementation(AdaptiveAveragePoolBackward, adaptive_average_pool_backward),
)
