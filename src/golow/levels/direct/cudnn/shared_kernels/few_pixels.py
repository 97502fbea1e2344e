"""Launches a convolution of few pixels on tensor cores: tiles of the result, and how many
blocks share the sums of a tile. few_pixels.cu has the mathematics."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import (
    CODE,
    FULL_GRID,
    ceiling,
    floats,
    integers,
)
from golow.levels.direct.cudnn.shared_kernels.direct_convolution import Convolution
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    LARGEST_INT,
    MOST_PARTS,
    require_floating,
)
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, Clip

FILE = FOLDER / "few_pixels.cu"
TENSOR_CORES = (FOLDER / "tensor_cores.cuh").read_text()
PARTS = FILE.with_suffix(".cuh").read_text()  # after the tensor cores
THREADS = 128
CHUNK_BYTES = 128  # of the depth, for every pixel and filter
AHEAD_BYTES = 48 << 10  # of chunks that are loaded ahead
# Shared memory that a region and its weights may need. Every GPU has it for a block, and one with
# clusters has room for two such blocks on each multiprocessor.
MOST_BYTES = 96 << 10
MOST_TAPS = 49  # of a window; each has a bit

TILES = ((32, 32), (64, 32), (64, 64), (16, 32), (16, 64))
SPLITS = (8, 4, 2, 1)  # every GPU with clusters supports a cluster of 8 blocks
# One or two blocks on each of 132 multiprocessors.
GRIDS = (FULL_GRID // 4, FULL_GRID // 2)


class Tiling(NamedTuple):
    """A cluster of `split` blocks computes `pixels` x `filters` numbers of the result; each block
    computes a part of their sums."""

    pixels: int
    filters: int
    split: int


def turned(convolution: Convolution) -> Convolution:
    """Return the convolution that gives the gradient of x: of the gradient of y, with the window
    rotated by 180 degrees and the filters as its channels.

    Raises ValueError for a stride other than 1, which leaves gaps in the gradient of y.
    """
    if convolution.stride != (1, 1):
        raise ValueError(f"a gradient by a convolution needs the stride (1, 1): {convolution}")
    far = zip(convolution.kernel, convolution.dilation, convolution.padding, strict=True)
    top, left = ((taps - 1) * dilation - padding for taps, dilation, padding in far)
    return replace(
        convolution,
        height=convolution.out_height, width=convolution.out_width, channels=convolution.filters,
        filters=convolution.channels, out_height=convolution.height, out_width=convolution.width,
        padding=(top, left),
    )  # fmt: skip


def takes(dtype: str, convolution: Convolution) -> bool:
    """True if there is a kernel for this convolution."""
    image = convolution.images * convolution.height * convolution.width * convolution.channels
    result = _pixels(convolution) * convolution.filters
    return (
        convolution.groups == 1
        and convolution.kernel[0] * convolution.kernel[1] <= MOST_TAPS
        and convolution.channels % _piece(dtype) == 0
        and convolution.filters % _piece(dtype) == 0
        and ceiling(_pixels(convolution), TILES[0][0]) <= MOST_PARTS
        and max(image, convolution.weights, result) <= LARGEST_INT
    )


def tilings(dtype: str, convolution: Convolution, *, clusters: bool = True) -> list[Tiling]:
    """Return the tilings that may be fastest: they give a large GPU one or two blocks for each
    multiprocessor. Problems that are not small fill it many times over and have no tilings.

    clusters: whether the GPU has them (sm_90 and later).
    """
    chunks = _chunks(dtype, convolution)
    found = []
    for (pixels, filters), blocks in ((tile, grid) for tile in TILES for grid in GRIDS):
        tiles = ceiling(_pixels(convolution), pixels) * ceiling(convolution.filters, filters)
        for split in SPLITS if clusters else (1,):
            # A block has at least one chunk.
            if tiles * split <= blocks and (split <= chunks or split == 1):
                found.append(Tiling(pixels, filters, split))
                break
    return list(dict.fromkeys(found))


def forward(
    dtype: str,
    convolution: Convolution,
    tiling: Tiling,
    *,
    clip: Clip = NO_CLIP,
    formula: str = "",
    frozen: bool = False,
) -> Kernel:
    """y = formula(clip(convolution + bias + residual)), with tf32 or 16-bit products and float32
    sums; formula: C over ``value``, none if empty. frozen: no kernel that may still run when this
    one begins writes the weight.

    Pointers: x, weight, bias, residual, y, all of the dtype and at multiples of 16 bytes. bias
    [filters] and residual may be 0: absent. residual has the shape of y, and y may alias it.
    Raises ValueError for what the kernel does not support.
    """
    kernel = _launched(dtype, convolution, tiling, clip, False, frozen)
    if formula:
        kernel = kernel._replace(code=f"#define ACTIVATED(value) ({formula})\n{kernel.code}")
    return kernel


def backward_data(dtype: str, convolution: Convolution, tiling: Tiling) -> Kernel:
    """The gradient of x, in tiles of `turned(convolution)`. Pointers: dy, weight, 0, 0, dx. Raises
    ValueError for what the kernel does not support."""
    return _launched(dtype, turned(convolution), tiling, NO_CLIP, True, False)


def _launched(
    dtype: str,
    convolution: Convolution,
    tiling: Tiling,
    clip: Clip,
    turned_weights: bool,
    frozen: bool,
) -> Kernel:
    piece = _piece(dtype)
    if not takes(dtype, convolution):
        raise ValueError(
            f"small convolution of {dtype} takes one group, channels and filters in multiples of "
            f"{piece} and tensors below 2^31 elements: {convolution}"
        )
    pixels, filters, split = tiling
    region = None if turned_weights else _region(dtype, convolution, tiling)
    sizes = (
        _pixels(convolution), convolution.height, convolution.width, convolution.channels // piece,
        convolution.filters, convolution.out_height, convolution.out_width,
    )  # fmt: skip
    windows = (
        *convolution.kernel, *convolution.stride, *convolution.padding, *convolution.dilation,
    )  # fmt: skip
    return Kernel(
        FILE,
        f"small<{C_TYPES[dtype]}, {pixels}, {filters}, {_c(turned_weights)}, {split}, "
        f"{_c(region is not None)}, {_c(frozen)}>",
        (ceiling(convolution.filters, filters) * split, ceiling(_pixels(convolution), pixels), 1),
        (THREADS, 1, 1),
        (*integers(*sizes, *windows, region.pixels if region else 0), *floats(*clip)),
        shared=_shared_bytes(tiling, region.bytes if region else AHEAD_BYTES),
        code=CODE + TENSOR_CORES + PARTS,
    )


class _Region(NamedTuple):
    """Region of x that a block keeps, each pixel once: of this many pixels, and bytes with its
    weights."""

    pixels: int
    bytes: int


def _region(dtype: str, convolution: Convolution, tiling: Tiling) -> _Region | None:
    """Return the region; None if there is none, or it saves less than half of what is read."""
    taps = convolution.kernel[0] * convolution.kernel[1]
    whole = convolution.channels * ITEM_BYTES[dtype] % CHUNK_BYTES == 0
    if not whole or taps == 1:
        return None
    pixels = max(
        _under(convolution, first, min(first + tiling.pixels, _pixels(convolution)) - 1)
        for first in range(0, _pixels(convolution), tiling.pixels)
    )
    part = ceiling(_chunks(dtype, convolution), tiling.split)
    most = part // taps if part % taps == 0 else (part + taps - 2) // taps + 1
    regions = min(most, convolution.channels * ITEM_BYTES[dtype] // CHUNK_BYTES)
    needed = CHUNK_BYTES * (part * tiling.filters + regions * (pixels + 1))
    fits = _shared_bytes(tiling, needed) <= MOST_BYTES
    saves = 2 * regions * pixels <= part * tiling.pixels
    return _Region(pixels, needed) if fits and saves else None


def _under(convolution: Convolution, first: int, last: int) -> int:
    """Pixels of x from the first to the last row under the windows of these pixels of y."""
    height, width, down = convolution.height, convolution.width, convolution.stride[0]
    lines = [pixel // convolution.out_width for pixel in (first, last)]
    image, last_image = (line // convolution.out_height for line in lines)
    reach = (convolution.kernel[0] - 1) * convolution.dilation[0]
    upper, lower = (
        line % convolution.out_height * down - convolution.padding[0] for line in lines
    )  # fmt: skip
    begin = image * height + min(max(upper, 0), height - 1)
    end = last_image * height + min(max(lower + reach, 0), height - 1)
    return (end + 1 - begin) * width


def _shared_bytes(tiling: Tiling, chunks: int) -> int:
    """Shared memory of a block: chunks, then the sums of its warps there, and those of a
    cluster."""
    sums = ITEM_BYTES["float32"] * tiling.pixels * (tiling.filters + 8)
    of_cluster = sums if tiling.split > 1 else 0
    return max(chunks, THREADS // tiling.filters * sums) + of_cluster


def _chunks(dtype: str, convolution: Convolution) -> int:
    depth = convolution.weights // convolution.filters
    return ceiling(depth * ITEM_BYTES[dtype], CHUNK_BYTES)


def _c(truth: bool) -> str:
    return str(truth).lower()


def _piece(dtype: str) -> int:
    """Elements in 16 bytes, which are copied at once."""
    require_floating(dtype=dtype)
    return 16 // ITEM_BYTES[dtype]


def _pixels(convolution: Convolution) -> int:
    """Pixels of the result."""
    return convolution.images * convolution.out_height * convolution.out_width
