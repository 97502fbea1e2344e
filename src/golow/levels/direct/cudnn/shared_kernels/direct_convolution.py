"""Launches convolution by its definition: the fallback for shapes that no engine of the
vendor supports. direct_convolution.cu has the mathematics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import (
    CODE,
    FULL_GRID,
    Launches,
    ceiling,
    floats,
    integers,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import require_floating
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, Clip

FILE = FOLDER / "direct_convolution.cu"
THREADS = 128
WALKERS = 8
ADDING_LANES = 8


@dataclass(frozen=True)
class Convolution:
    """A convolution's geometry. x is [images, height, width, channels], y [images, out_height,
    out_width, filters], weights [filters, R, S, channels / groups] with kernel = (R, S). padding is
    (top, left); the other two sides follow from the size of y. image_pitch, output_pitch: elements
    from one pixel to the next, for a depthwise convolution of ranges of wider images; 0 without.

    Raises ValueError for numbers that do not describe a convolution.
    """

    images: int
    height: int
    width: int
    channels: int
    filters: int
    out_height: int
    out_width: int
    kernel: tuple[int, int]
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    image_pitch: int = 0
    output_pitch: int = 0

    def __post_init__(self) -> None:
        images = (self.images, self.height, self.width, self.out_height, self.out_width)
        channels = (self.channels, self.filters, self.groups)
        if min(*images, *channels, *self.kernel, *self.stride, *self.dilation) < 1:
            raise ValueError(f"every size of a convolution is at least 1: {self}")
        if self.channels % self.groups or self.filters % self.groups:
            raise ValueError(f"groups must divide both channels and filters: {self}")

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def weights(self) -> int:
        """The number of weights."""
        return self.filters * self.taps * self.channels // self.groups

    @property
    def scalars(self) -> tuple[np.generic, ...]:
        """The kernels' scalar arguments, except a clip."""
        sizes = (self.images, self.height, self.width, self.channels, self.filters)
        windows = (*self.stride, *self.padding, *self.dilation, self.groups)
        return integers(*sizes, self.out_height, self.out_width, *windows)


def forward(
    dtype: str, weight_dtype: str, convolution: Convolution, *, clip: Clip = NO_CLIP
) -> Launches:
    """y = clip(convolution + bias + residual).

    Pointers: x, weight, bias, residual, y. bias [filters] is float32; bias and residual may be 0:
    absent. residual has the shape and type of y, and y may alias it.
    """
    require_floating(dtype=dtype)
    lines = convolution.images * convolution.out_height
    width, filters = convolution.out_width, convolution.filters
    # Adjacent pixels share weights, unless that leaves the GPU with too few threads.
    strip = 4 if lines * ceiling(width, 4) * filters >= FULL_GRID * THREADS else 1
    return Launches(
        (
            _one_each(
                f"forward<{_types(dtype, weight_dtype)}, {_sizes(convolution)}, {strip}>",
                lines * ceiling(width, strip) * filters,
                (*convolution.scalars, *floats(*clip)),
            ),
        )
    )


def backward_data(dtype: str, weight_dtype: str, convolution: Convolution) -> Launches:
    """The gradient of x. Pointers: dy, weight, dx."""
    require_floating(dtype=dtype)
    return Launches(
        (
            _one_each(
                f"backward_data<{_types(dtype, weight_dtype)}, {_sizes(convolution)}>",
                convolution.images * convolution.height * convolution.width * convolution.channels,
                convolution.scalars,
            ),
        )
    )


def backward_weight(dtype: str, convolution: Convolution) -> Launches:
    """The gradient of the weights in float32. Pointers: dy, x, dw, scratch."""
    require_floating(dtype=dtype)
    weights, lines = convolution.weights, convolution.images * convolution.out_height
    tiles = ceiling(weights, 32)
    parts = max(min(ceiling(FULL_GRID, tiles), lines // WALKERS), 1)
    sums = Kernel(
        FILE,
        f"backward_weight<{C_TYPES[dtype]}, {_sizes(convolution)}>",
        (tiles, parts, 1),
        (32, WALKERS, 1),
        convolution.scalars,
        code=CODE,
    )
    return with_parts_added(sums, weights, parts)


def with_parts_added(sums: Kernel, weights: int, parts: int) -> Launches:
    """A kernel that writes parts of dw to its scratch, and one that adds them. A single part is
    already dw. Both have the pointers dy, x, dw, scratch."""
    if parts == 1:
        return Launches((sums,))
    add = Kernel(
        FILE,
        f"add_parts<{ADDING_LANES}>",
        (ceiling(weights, 32), 1, 1),
        (32, ADDING_LANES, 1),
        integers(weights, parts),
        code=CODE,
    )
    return Launches((sums, add), scratch=parts * weights)


def _types(dtype: str, weight_dtype: str) -> str:
    require_floating(weight_dtype=weight_dtype)
    return f"{C_TYPES[dtype]}, {C_TYPES[weight_dtype]}"


def _sizes(convolution: Convolution) -> str:
    """Sizes known when the kernel is compiled, so that the loops over them are unrolled."""
    rows, columns = convolution.kernel
    return f"{convolution.channels // convolution.groups}, {rows}, {columns}"


def _one_each(expression: str, threads: int, scalars: tuple[np.generic, ...]) -> Kernel:
    blocks = min(ceiling(threads, THREADS), 8 * FULL_GRID)
    return Kernel(FILE, expression, (blocks, 1, 1), (THREADS, 1, 1), scalars, code=CODE)
