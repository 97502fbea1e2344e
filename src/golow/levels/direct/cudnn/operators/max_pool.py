"""The maximum of each window of an image, and its gradient."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.build.refusing import beyond_kernel
from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import rows_of
from golow.levels.direct.cudnn.shared_kernels.pooling import (
    POOLING,
    Images,
    Source,
    Window,
    axes_of,
    backward,
    forward,
    launched,
    vectors,
)
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating, not_made_by, read_by_others
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

SOURCE = Source(Path(__file__).with_suffix(".cu"), POOLING)
MOST_TAPS = 255  # a position is kept in one byte; 255 means none
MOST_LOADED = 9  # pixels of a window that a thread loads at once
MOST_TILE_WORK = 16  # 3x3 windows with stride 2; more would not fit in the registers


class Taps(NamedTuple):
    """A note instead of the indices: the position of each maximum in its window, in one byte."""

    tensor: Tensor


def max_pool(build: Builder, arguments: MaxPool) -> None:
    """Define the maximum of each window; in training, also note its position."""
    source = build.values.image(arguments.x)
    read = 0 if build.current.is_read(0) else 1  # a backward pass may want the positions alone
    shape = build.current.output(read).shape
    result = build.memory.new(build.current.output_name(), shape, source.layout)
    taps = arguments.indices and build.current.is_read(1)
    writes = [result]
    if taps:
        layout = source.layout._replace(dtype="uint8")
        writes.append(build.memory.new(build.current.output(1).name, result.shape, layout))
        build.current.note(build.current.output(1).name, Taps(writes[1]))
    sizes = Images.between(source.shape, result.shape)
    kernel = forward_kernel(source.dtype, sizes, _window(arguments), taps)
    build.steps.kernel(kernel, [source], writes)
    build.values.define(0, result)


def max_pool_backward(build: Builder, arguments: MaxPoolBackward) -> None:
    """Add each gradient at the position of its maximum."""
    outer, shape = build.values.image(arguments.gradient), build.current.value(arguments.x).shape
    result = build.memory.new(build.current.output().name, shape, outer.layout)
    sizes = Images.between(shape, outer.shape)
    kernel = backward_kernel(outer.dtype, sizes, _window(arguments))
    taps = build.current.noted(arguments.indices, Taps).tensor
    build.steps.kernel(kernel, [outer, taps], [result])
    build.values.define(0, result)


def _window(arguments: MaxPool | MaxPoolBackward) -> Window:
    return Window(arguments.kernel, arguments.stride, arguments.padding, arguments.dilation)


def _refuse(arguments: MaxPool, question: Question) -> str:
    output = next(value for value in question.node.outputs if value is not None)
    shape = question.value(arguments.x).shape
    if arguments.indices and (other := read_by_others(question, 1, MaxPoolBackward)):
        return other
    sizes = Images.between(shape, output.shape)
    return not_floating(question, arguments.x) or beyond_kernel(
        question, lambda: forward_kernel("float32", sizes, _window(arguments), arguments.indices)
    )


def _refuse_backward(arguments: MaxPoolBackward, question: Question) -> str:
    return not_made_by(question, arguments.indices, MaxPool)


# ---------------------------------------------------------------- kernels


def forward_kernel(dtype: str, images: Images, window: Window, taps: bool) -> Kernel:
    """Pointers: x -> y[, taps]. taps, uint8 of the shape of y: the maximum's r * S + s.

    Raises ValueError if the window has more than 255 taps.
    """
    area = window.kernel[0] * window.kernel[1]
    if area > MOST_TAPS:
        raise ValueError(f"a kernel of {area} taps; max pooling keeps at most {MOST_TAPS}")
    name = "max_pool_taps" if taps else "max_pool"
    known = window.kernel if area <= MOST_LOADED else (0, 0)
    return forward(SOURCE, name, dtype, images, axes_of(images, window), known)


def backward_kernel(dtype: str, images: Images, window: Window) -> Kernel:
    """Pointers: dy, taps -> dx. taps come from `forward_kernel`.

    Windows that are small relative to their stride have a kernel that is compiled for their size.
    """
    axes = axes_of(images, window)
    if window.dilation != (1, 1) or _work_of_a_tile(window) > MOST_TILE_WORK:
        return backward(SOURCE, "max_pool_backward", dtype, images, axes)
    groups, each = vectors(dtype, images)
    down = -(-(images.h + window.padding[0]) // window.stride[0])
    across = -(-(images.w + window.padding[1]) // window.stride[1])
    rows = images.h, images.out_h, window.padding[0], down
    columns = images.w, images.out_w, window.padding[1], across
    numbers = ", ".join(str(number) for axis in zip(*window[:2], strict=True) for number in axis)
    name = f"max_pool_backward_tiles<{C_TYPES[dtype]}, {each}, {numbers}>"
    grid, block = rows_of(images.n * down, across * groups)
    return launched(SOURCE, name, grid, block, (groups, *rows, *columns))


def _work_of_a_tile(window: Window) -> int:
    """Pixels between the starts of two windows, times the windows that cover them."""
    axes = zip(window.kernel, window.stride, strict=True)
    return prod(stride * -(-kernel // stride) for kernel, stride in axes)


IMPLEMENTATIONS = (
    Implementation(MaxPool, max_pool, _refuse),
    Implementation(MaxPoolBackward, max_pool_backward, _refuse_backward),
)
