"""How a convolution of few pixels is launched on tensor cores: tiles of the result, and how many
blocks share the sums of a tile. small.cu has the mathematics."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from golow.levels.vendor.cudnn.kernels import C_TYPES, FOLDER, ITEM_BYTES, Kernel
from golow.levels.vendor.cudnn.kernels.blocks import CODE, FULL_GRID, ceiling, floats, integers
from golow.levels.vendor.cudnn.kernels.direct import Convolution
from golow.levels.vendor.cudnn.kernels.geometry import LARGEST_INT, MOST_PARTS, require_floating
from golow.levels.vendor.formulas import NO_CLIP, Clip

FILE = FOLDER / "small.cu"
TENSOR_CORES = (FOLDER / "tensor_cores.cuh").read_text()
THREADS = 128
CHUNK_BYTES = 128  # of the depth, for every pixel and filter

TILES = ((32, 32), (64, 32), (64, 64))
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
    """Whether there is a kernel for this convolution."""
    image = convolution.images * convolution.height * convolution.width * convolution.channels
    return (
        convolution.groups == 1
        and convolution.channels % _piece(dtype) == 0
        and convolution.filters % _piece(dtype) == 0
        and ceiling(_pixels(convolution), TILES[0][0]) <= MOST_PARTS
        and max(image, convolution.weights) <= LARGEST_INT
    )


def tilings(dtype: str, convolution: Convolution, *, clusters: bool = True) -> list[Tiling]:
    """Return the tilings that may be fastest: they give a large GPU one or two blocks for each
    multiprocessor. Problems that are not small fill it many times over and have no tilings.

    clusters: whether the GPU has them (sm_90 and later).
    """
    chunks = ceiling(convolution.weights // convolution.filters * ITEM_BYTES[dtype], CHUNK_BYTES)
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
    dtype: str, convolution: Convolution, tiling: Tiling, *, clip: Clip = NO_CLIP
) -> Kernel:
    """y = clip(convolution + bias + residual), with tf32 or 16-bit products and float32 sums.

    Pointers: x, weight, bias, residual, y, all of the dtype and at multiples of 16 bytes. bias
    [filters] and residual may be 0: absent. residual has the shape of y, and y may alias it.
    Raises ValueError for what the kernel does not support.
    """
    return _launched(dtype, convolution, tiling, clip, "false")


def backward_data(dtype: str, convolution: Convolution, tiling: Tiling) -> Kernel:
    """The gradient of x, in tiles of `turned(convolution)`. Pointers: dy, weight, 0, 0, dx. Raises
    ValueError for what the kernel does not support."""
    return _launched(dtype, turned(convolution), tiling, NO_CLIP, "true")


def _launched(
    dtype: str, convolution: Convolution, tiling: Tiling, clip: Clip, turned_weights: str
) -> Kernel:
    piece = _piece(dtype)
    if not takes(dtype, convolution):
        raise ValueError(
            f"small convolution of {dtype} takes one group, channels and filters in multiples of "
            f"{piece} and tensors below 2^31 elements: {convolution}"
        )
    pixels, filters, split = tiling
    sizes = (
        _pixels(convolution), convolution.height, convolution.width, convolution.channels // piece,
        convolution.filters, convolution.out_height, convolution.out_width,
    )  # fmt: skip
    windows = (
        *convolution.kernel, *convolution.stride, *convolution.padding, *convolution.dilation,
    )  # fmt: skip
    return Kernel(
        FILE,
        f"small<{C_TYPES[dtype]}, {pixels}, {filters}, {turned_weights}, {split}>",
        (ceiling(convolution.filters, filters) * split, ceiling(_pixels(convolution), pixels), 1),
        (THREADS, 1, 1),
        (*integers(*sizes, *windows), *floats(*clip)),
        code=CODE + TENSOR_CORES,
    )


def _piece(dtype: str) -> int:
    """Elements in 16 bytes, which are copied at once."""
    require_floating(dtype=dtype)
    return 16 // ITEM_BYTES[dtype]


def _pixels(convolution: Convolution) -> int:
    """Pixels of the result."""
    return convolution.images * convolution.out_height * convolution.out_width
