"""Parts shared by all pooling of images [n, h, w, c]: sizes, windows, and how the rows of an image
are distributed over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    LARGEST_INT,
    VECTOR,
    channel_vector,
    require_floating,
    require_positive,
    rows_of,
)

Sizes = tuple[int, ...]
POOLING = VECTOR + (FOLDER / "pooling.cuh").read_text()  # included before the kernels
AVERAGES = POOLING + (FOLDER / "averages.cuh").read_text()


class Window(NamedTuple):
    """Kernel, stride, padding before (top, left) and dilation of a pooling: (height, width)."""

    kernel: Sizes
    stride: Sizes
    padding: Sizes = (0, 0)
    dilation: Sizes = (1, 1)


class Images(NamedTuple):
    """Sizes of a pooling from images [n, h, w, c] to [n, out_h, out_w, c]."""

    n: int
    h: int
    w: int
    c: int
    out_h: int
    out_w: int

    @classmethod
    def between(cls, source: Sequence[int], result: Sequence[int]) -> Images:
        """Return the sizes for two shapes [n, c, h, w]."""
        n, c, h, w = source
        return cls(n, h, w, c, *result[2:])


class Source(NamedTuple):
    """A CUDA file, and the code before it."""

    file: Path
    code: str


def forward(
    source: Source,
    name: str,
    dtype: str,
    images: Images,
    scalars: tuple[int, ...],
    numbers: Sizes = (),
) -> Kernel:
    """A launch with a thread for each vector of the result; numbers: further arguments of the
    template."""
    size = images.out_h, images.out_w
    return _by_rows(source, name, dtype, images, size, scalars, numbers)


def backward(
    source: Source, name: str, dtype: str, images: Images, scalars: tuple[int, ...]
) -> Kernel:
    """A launch with a thread for each vector of the gradient."""
    return _by_rows(source, name, dtype, images, (images.h, images.w), scalars)


def _by_rows(
    source: Source,
    name: str,
    dtype: str,
    images: Images,
    size: Sizes,
    scalars: tuple[int, ...],
    numbers: Sizes = (),
) -> Kernel:
    groups, each = vectors(dtype, images)
    grid, block = rows_of(images.n * size[0], size[1] * groups)
    expression = f"{name}<{', '.join(map(str, (C_TYPES[dtype], each, *numbers)))}>"
    return launched(source, expression, grid, block, (groups, *scalars))


def launched(
    source: Source,
    expression: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    scalars: tuple[int, ...],
) -> Kernel:
    """A kernel whose scalars are all integers."""
    integers = tuple(map(np.int32, scalars))
    return Kernel(source.file, expression, grid, block, integers, code=source.code)


def vectors(dtype: str, images: Images) -> Sizes:
    """Return the vectors of a pixel's channels, and the channels in one vector."""
    require_floating(dtype=dtype)
    require_positive(**images._asdict(), row_elements=images.w * images.c)
    largest = (images.h + 1) * (images.out_h + 1), (images.w + 1) * (images.out_w + 1)
    require_positive(rows_product=largest[0], columns_product=largest[1])
    if images.n * max(images.h, images.out_h) > LARGEST_INT:
        raise ValueError(f"{images.n} images of {images.h} rows are more than one launch can take")
    each = channel_vector(dtype, images.c)
    return images.c // each, each


def axes_of(images: Images, window: Window) -> tuple[int, ...]:
    """Return sizes and window of both axes, as kernels take them. Raises ValueError for an
    impossible window."""
    for name, pair in window._asdict().items():
        if min(pair) < (0 if name == "padding" else 1):
            raise ValueError(f"the {name} of a pooling is {pair}")
    axes = zip((images.h, images.w), (images.out_h, images.out_w), *window, strict=True)
    return tuple(number for axis in axes for number in axis)
