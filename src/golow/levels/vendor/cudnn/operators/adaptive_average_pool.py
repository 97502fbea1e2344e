"""Average pooling to a given size, and its gradient."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import rows_of
from golow.levels.vendor.cudnn.kernels.pooling import (
    AVERAGES,
    Images,
    Source,
    backward,
    forward,
    launched,
    vectors,
)
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.refusing import beyond_kernel
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_floating
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

SOURCE = Source(Path(__file__).with_suffix(".cu"), AVERAGES)
# Above this many vectors of an image, a block of the global average has 1024 threads.
LONG_SUM = 2048


def adaptive_average_pool(build: Builder, arguments: AdaptiveAveragePool) -> None:
    """The mean over windows that cover the image, for a given size of the result."""
    source = build.image(arguments.x)
    result = build.new(build.output().name, build.output().shape, source.layout)
    sizes = Images.between(source.shape, result.shape)
    build.kernel(forward_kernel(source.dtype, sizes), [source], [result])
    build.define(0, result)


def adaptive_average_pool_backward(build: Builder, arguments: AdaptiveAveragePoolBackward) -> None:
    """The gradient of `adaptive_average_pool`."""
    outer, shape = build.image(arguments.gradient), arguments.shape
    layout = Layout(outer.dtype, "channels_last", shape[1])
    result = build.new(build.output().name, shape, layout)
    sizes = Images.between(shape, outer.shape)
    kernel = backward_kernel(outer.dtype, sizes)
    build.kernel(kernel, [outer], [result])
    build.define(0, result)


def _refuse(arguments: AdaptiveAveragePool, question: Question) -> str:
    shape = question.value(arguments.x).shape
    sizes = Images.between(shape, (*shape[:2], *arguments.size))
    return not_floating(question, arguments.x) or beyond_kernel(
        question, lambda: forward_kernel("float32", sizes)
    )


# ---------------------------------------------------------------- kernels


def forward_kernel(dtype: str, images: Images) -> Kernel:
    """Pointers: x -> y, of any size; PyTorch's windows. The global average has its own kernel."""
    if images.out_h == images.out_w == 1:
        return _global_average(dtype, images)
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


def _global_average(dtype: str, images: Images) -> Kernel:
    groups, each = vectors(dtype, images)
    pixels = images.h * images.w
    threads = 1024 if groups * pixels > LONG_SUM else 256
    lanes = min(32, 1 << (groups - 1).bit_length())  # halving needs a power of two
    grid = (images.n, -(-groups // lanes), 1)
    name = f"global_average_pool<{C_TYPES[dtype]}, {each}>"
    shared = threads * each * 4
    return launched(SOURCE, name, grid, (lanes, threads // lanes, 1), (groups, pixels), shared)


def _sizes(images: Images) -> tuple[int, ...]:
    return images.h, images.out_h, images.w, images.out_w


IMPLEMENTATIONS = (
    Implementation(AdaptiveAveragePool, adaptive_average_pool, _refuse),
    Implementation(AdaptiveAveragePoolBackward, adaptive_average_pool_backward),
)
