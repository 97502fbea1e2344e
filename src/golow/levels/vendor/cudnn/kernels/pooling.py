"""Pooling of images [n, h, w, c] and its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from golow.levels.vendor.cudnn.kernels import C_TYPES, Kernel
from golow.levels.vendor.cudnn.kernels.geometry import (
    LARGEST_INT,
    VECTOR,
    channel_vector,
    require_floating,
    require_positive,
    rows_of,
)

Pair = tuple[int, int]
MOST_TAPS = 255  # a winner is kept in one byte, and 255 says none
MOST_TILE_WORK = 16  # 3x3 windows at a stride of 2; more would not fit in the registers
# Past this many vectors of one image a block of the global average takes 1024 threads.
LONG_SUM = 2048


class Window(NamedTuple):
    """Kernel, stride, padding before (top, left) and dilation of a pooling."""

    kernel: Pair
    stride: Pair
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)


class Images(NamedTuple):
    """Sizes of a pooling: images [n, h, w, c] to [n, out_h, out_w, c]."""

    n: int
    h: int
    w: int
    c: int
    out_h: int
    out_w: int

    @classmethod
    def between(cls, source: Sequence[int], result: Sequence[int]) -> Images:
        """Sizes between two shapes [n, c, h, w]."""
        n, c, h, w = source
        return cls(n, h, w, c, *result[2:])


def max_pool(dtype: str, images: Images, window: Window, taps: bool) -> Kernel:
    """Pointers: x -> y[, taps]. taps, uint8 of the shape of y: the winner's r * S + s.

    Raises ValueError where the kernel has more than 255 taps.
    """
    area = window.kernel[0] * window.kernel[1]
    if area > MOST_TAPS:
        raise ValueError(f"a kernel of {area} taps; max pooling keeps at most {MOST_TAPS}")
    name = "max_pool_taps" if taps else "max_pool"
    return _forward(name, dtype, images, _axes(images, window))


def max_pool_backward(dtype: str, images: Images, window: Window) -> Kernel:
    """Pointers: dy, taps -> dx. taps are what `max_pool` left.

    Windows that are small against their stride have a kernel that knows them when it is compiled.
    """
    axes = _axes(images, window)
    if window.dilation != (1, 1) or _work_of_a_tile(window) > MOST_TILE_WORK:
        return _backward("max_pool_backward", dtype, images, axes)
    groups, each = _groups(dtype, images)
    down = -(-(images.h + window.padding[0]) // window.stride[0])
    across = -(-(images.w + window.padding[1]) // window.stride[1])
    rows = images.h, images.out_h, window.padding[0], down
    columns = images.w, images.out_w, window.padding[1], across
    numbers = ", ".join(str(number) for axis in zip(*window[:2], strict=True) for number in axis)
    name = f"max_pool_backward_tiles<{C_TYPES[dtype]}, {each}, {numbers}>"
    grid, block = rows_of(images.n * down, across * groups)
    return _kernel(name, grid, block, (groups, *rows, *columns))


def _work_of_a_tile(window: Window) -> int:
    """Pixels between the starts of two windows, times the windows that cover them."""
    axes = zip(window.kernel, window.stride, strict=True)
    return prod(stride * -(-kernel // stride) for kernel, stride in axes)


def average_pool(
    dtype: str, images: Images, window: Window, count_include_pad: bool, divisor_override: int = 0
) -> Kernel:
    """Pointers: x -> y. divisor_override: 0 for none. Raises ValueError for a dilation."""
    scalars = (*_axes(images, _undilated(window)), int(count_include_pad), divisor_override)
    return _forward("average_pool", dtype, images, scalars)


def average_pool_backward(
    dtype: str, images: Images, window: Window, count_include_pad: bool, divisor_override: int = 0
) -> Kernel:
    """Pointers: dy -> dx."""
    scalars = (*_axes(images, _undilated(window)), int(count_include_pad), divisor_override)
    return _backward("average_pool_backward", dtype, images, scalars)


def adaptive_average_pool(dtype: str, images: Images) -> Kernel:
    """Pointers: x -> y, of any size; PyTorch's windows, the global average by its own kernel."""
    if images.out_h == images.out_w == 1:
        return _global_average(dtype, images)
    return _forward("adaptive_average_pool", dtype, images, _sizes(images))


def adaptive_average_pool_backward(dtype: str, images: Images) -> Kernel:
    """Pointers: dy -> dx."""
    if images.out_h == images.out_w == 1:
        groups, each = _groups(dtype, images)
        pixels = images.h * images.w
        grid, block = rows_of(images.n, pixels * groups)
        name = f"global_average_pool_backward<{C_TYPES[dtype]}, {each}>"
        return _kernel(name, grid, block, (groups, pixels))
    return _backward("adaptive_average_pool_backward", dtype, images, _sizes(images))


def _global_average(dtype: str, images: Images) -> Kernel:
    groups, each = _groups(dtype, images)
    pixels = images.h * images.w
    threads = 1024 if groups * pixels > LONG_SUM else 256
    lanes = min(32, 1 << (groups - 1).bit_length())  # a power of two, as the halving needs
    grid = (images.n, -(-groups // lanes), 1)
    name = f"global_average_pool<{C_TYPES[dtype]}, {each}>"
    shared = threads * each * 4
    return _kernel(name, grid, (lanes, threads // lanes, 1), (groups, pixels), shared)


def _forward(name: str, dtype: str, images: Images, scalars: tuple[int, ...]) -> Kernel:
    return _by_rows(name, dtype, images, (images.out_h, images.out_w), scalars)


def _backward(name: str, dtype: str, images: Images, scalars: tuple[int, ...]) -> Kernel:
    return _by_rows(name, dtype, images, (images.h, images.w), scalars)


def _by_rows(name: str, dtype: str, images: Images, size: Pair, scalars: tuple[int, ...]) -> Kernel:
    """A thread for each vector of the image that is written."""
    groups, each = _groups(dtype, images)
    grid, block = rows_of(images.n * size[0], size[1] * groups)
    return _kernel(f"{name}<{C_TYPES[dtype]}, {each}>", grid, block, (groups, *scalars))


def _kernel(
    name: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    scalars: tuple[int, ...],
    shared: int = 0,
) -> Kernel:
    integers = tuple(map(np.int32, scalars))
    return Kernel("pooling.cu", name, grid, block, integers, shared, code=VECTOR)


def _groups(dtype: str, images: Images) -> Pair:
    """Vectors of a pixel's channels, and channels in one."""
    require_floating(dtype=dtype)
    require_positive(**images._asdict(), row_elements=images.w * images.c)
    largest = (images.h + 1) * (images.out_h + 1), (images.w + 1) * (images.out_w + 1)
    require_positive(rows_product=largest[0], columns_product=largest[1])
    if images.n * max(images.h, images.out_h) > LARGEST_INT:
        raise ValueError(f"{images.n} images of {images.h} rows are more than one launch can take")
    each = channel_vector(dtype, images.c)
    return images.c // each, each


def _axes(images: Images, window: Window) -> tuple[int, ...]:
    for name, pair in window._asdict().items():
        if min(pair) < (0 if name == "padding" else 1):
            raise ValueError(f"the {name} of a pooling is {pair}")
    axes = zip((images.h, images.w), (images.out_h, images.out_w), *window, strict=True)
    return tuple(number for axis in axes for number in axis)


def _sizes(images: Images) -> tuple[int, ...]:
    return images.h, images.out_h, images.w, images.out_w


def _undilated(window: Window) -> Window:
    if window.dilation != (1, 1):
        raise ValueError(f"average pooling with dilation {window.dilation}; it has none")
    return window
