"""Launches the convolution of a network's first layer, and the gradient of its weights: of
images with few channels, on tensor cores. first_layer.cu has the mathematics."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import (
    CODE,
    FULL_GRID,
    Launches,
    ceiling,
    floats,
    integers,
)
from golow.levels.direct.cudnn.shared_kernels.direct_convolution import Convolution
from golow.levels.direct.cudnn.shared_kernels.fetch_inputs import BATCHES
from golow.levels.direct.cudnn.shared_kernels.few_pixels import TENSOR_CORES
from golow.levels.direct.cudnn.shared_kernels.geometry import LARGEST_INT, require_floating
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, Clip

FILE = FOLDER / "first_layer.cu"
MOST_CHANNELS, LARGEST_KERNEL, LARGEST_STRIDE = 4, 11, 4
# Filters are written in vectors of this many.
FILTERS = 8
COLUMNS = 16  # of a tile
MOST_LOADED = 40  # numbers that a thread holds of the next tile
SHARED_BYTES = 48 << 10  # what every GPU has for a block
# Threads that are resident at once: 512 on each of 132 multiprocessors.
RESIDENT = FULL_GRID * 128
WEIGHT_THREADS, MOST_UNITS, ADDING_LANES = 256, 4, 8


class Tiling(NamedTuple):
    """Warps of a block: `abreast` have 32 filters each, `deep` have `each` rows of 16 pixels."""

    abreast: int
    deep: int
    each: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.abreast * self.deep

    @property
    def rows(self) -> int:
        """Rows of the result."""
        return self.deep * self.each

    def __str__(self) -> str:
        return f"{self.abreast}x{self.deep}x{self.each}"


class _Tile:
    """Sizes of a tile in shared memory, as first_layer.cu computes them."""

    def __init__(self, dtype: str, convolution: Convolution, rows: int) -> None:
        taps_down, taps = convolution.kernel
        down, across = convolution.stride
        piece = 16 // ITEM_BYTES[dtype]
        width = convolution.channels if convolution.channels < 3 else 4
        while width * across % piece:
            width *= 2
        self.steps = ceiling(taps * width, 2 * piece)
        depth = self.steps * 2 * piece
        line = ceiling(15 * across * width + depth, piece) * piece
        high = (rows - 1) * down + taps_down
        self.pixels, self.bytes = high * line // width, high * line * ITEM_BYTES[dtype]
        self.filter_bytes = (taps_down * depth + piece) * ITEM_BYTES[dtype]


def takes(dtype: str, convolution: Convolution) -> bool:
    """True if there is a kernel for this convolution."""
    require_floating(dtype=dtype)
    pixels = convolution.images * convolution.out_height * convolution.out_width
    return (
        convolution.groups == 1
        and convolution.dilation == (1, 1)
        and convolution.channels <= MOST_CHANNELS
        and convolution.filters % FILTERS == 0
        and 1 < max(convolution.kernel) <= LARGEST_KERNEL
        and max(convolution.stride) <= LARGEST_STRIDE
        and min(convolution.out_height, convolution.out_width) >= 4
        and pixels * convolution.filters <= LARGEST_INT
        and bool(tilings(dtype, convolution))
    )


def takes_gradient(dtype: str, convolution: Convolution) -> bool:
    """True if there is a kernel for the gradient of its weights."""
    return takes(dtype, convolution) and _gradient_rows(dtype, convolution) > 0


def tilings(dtype: str, convolution: Convolution) -> list[Tiling]:
    """Return the tilings that fit, the likeliest first: the largest of those that give every second
    multiprocessor of a large GPU a block, then those with more blocks."""

    def blocks(tiling: Tiling) -> int:
        columns = ceiling(convolution.filters, 32 * tiling.abreast)
        return _tiles(convolution, tiling.rows) * columns

    def rank(tiling: Tiling) -> tuple[bool, int]:
        filled = blocks(tiling) >= FULL_GRID // 8
        return not filled, -tiling.threads * tiling.each if filled else -blocks(tiling)

    needed = ceiling(convolution.filters, 32)
    abreast = dict.fromkeys((min(needed, 3) if needed < 4 else 2, 1))
    shapes = (Tiling(*shape) for shape in product(abreast, (4, 2), (4, 2, 1)))
    return sorted((shape for shape in shapes if _fits(dtype, convolution, shape)), key=rank)


def _fits(dtype: str, convolution: Convolution, tiling: Tiling) -> bool:
    """True if shared memory and registers hold what a block needs."""
    tile = _Tile(dtype, convolution, tiling.rows)
    copied = convolution.weights // convolution.filters * ITEM_BYTES[dtype]
    filters = 32 * tiling.abreast
    shared = filters * tile.filter_bytes + max(tile.bytes, filters * copied)
    numbers = ceiling(tile.pixels, tiling.threads) * convolution.channels
    few = tiling.abreast * tiling.deep <= 8 and numbers <= MOST_LOADED
    return few and shared <= SHARED_BYTES and tiling.rows < convolution.out_height + tiling.deep


def forward(
    source: str,
    dtype: str,
    convolution: Convolution,
    tiling: Tiling,
    *,
    clip: Clip = NO_CLIP,
    formula: str = "",
) -> Kernel:
    """y = formula(clip(convolution + bias)) with tf32 or 16-bit products and float32 sums; formula:
    C over ``value``, none if empty.

    Pointers: all batches [batches, images, channels, height, width] of ``source``, position
    (int32), weight [filters, R, S, channels], bias, y. bias [filters] is float32 and may be 0:
    absent. Raises ValueError for what the kernel does not support.
    """
    _check(dtype, convolution)
    numbers = ", ".join(map(str, tiling))
    columns = ceiling(convolution.filters, 32 * tiling.abreast)
    kernel = Kernel(
        FILE,
        f"first<{_types(source, dtype, convolution)}, {numbers}>",
        (min(_tiles(convolution, tiling.rows), RESIDENT // tiling.threads), columns, 1),
        (tiling.threads, 1, 1),
        (*_sizes(convolution), *floats(*clip)),
        code=CODE + BATCHES + TENSOR_CORES,
    )
    if formula:
        kernel = kernel._replace(code=f"#define ACTIVATED(value) ({formula})\n{kernel.code}")
    return kernel


def backward_weight(source: str, dtype: str, result: str, convolution: Convolution) -> Launches:
    """The gradient of the weights [filters, R, S, channels] in the type ``result``. Pointers: all
    batches, position, dy, dw, scratch. Raises ValueError for what the kernel does not support."""
    _check(dtype, convolution)
    rows = _gradient_rows(dtype, convolution)
    if not rows:
        raise ValueError(f"the gradient of the weights has no tile: {convolution}")
    abreast = _gradient_warps(convolution)
    columns = ceiling(convolution.filters, 32 * abreast)
    parts = min(_tiles(convolution, rows), RESIDENT // WEIGHT_THREADS)
    code = CODE + BATCHES + TENSOR_CORES
    sums = Kernel(
        FILE,
        f"first_weight<{_types(source, dtype, convolution)}, {abreast}, {rows}>",
        (parts, columns, 1),
        (WEIGHT_THREADS, 1, 1),
        _sizes(convolution),
        code=code,
    )
    add = Kernel(
        FILE,
        f"first_weight_sum<{C_TYPES[result]}, {ADDING_LANES}>",
        (ceiling(convolution.weights, 32), 1, 1),
        (32, ADDING_LANES, 1),
        integers(convolution.weights, parts),
        code=code,
    )
    return Launches((sums, add), scratch=parts * convolution.weights)


def _gradient_warps(convolution: Convolution) -> int:
    """Warps side by side, each with 32 filters."""
    return min(ceiling(convolution.filters, 32), 2)


def _gradient_rows(dtype: str, convolution: Convolution) -> int:
    """Rows of a tile; 0 if none fits into shared memory, or the sums do not fit into registers."""
    abreast = _gradient_warps(convolution)
    units = ceiling(convolution.kernel[0] * _Tile(dtype, convolution, 1).steps, 8 // abreast)
    if units > (2 * MOST_UNITS if dtype == "float32" else MOST_UNITS):  # half as many sums in each
        return 0
    for rows in (8, 4, 2):
        gradients = rows * COLUMNS * (32 * abreast + 8) * ITEM_BYTES[dtype]
        if dtype != "float32":  # two tiles
            gradients *= 2
        if gradients + _Tile(dtype, convolution, rows).bytes <= SHARED_BYTES:
            return rows
    return 0


def _tiles(convolution: Convolution, rows: int) -> int:
    down, across = ceiling(convolution.out_height, rows), ceiling(convolution.out_width, COLUMNS)
    return convolution.images * down * across


def _types(source: str, dtype: str, convolution: Convolution) -> str:
    sizes = (convolution.channels, *convolution.kernel, *convolution.stride)
    return f"{C_TYPES[source]}, {C_TYPES[dtype]}, {', '.join(map(str, sizes))}"


def _sizes(convolution: Convolution) -> tuple[np.generic, ...]:
    image = (convolution.height, convolution.width)
    batch = convolution.images * convolution.channels * image[0] * image[1]
    output = (convolution.out_height, convolution.out_width, convolution.filters)
    return (
        np.uint64(batch),
        *integers(convolution.images, *image, *output, *convolution.padding),
    )


def _check(dtype: str, convolution: Convolution) -> None:
    if not takes(dtype, convolution):
        raise ValueError(f"first convolution of {dtype} does not take {convolution}")
