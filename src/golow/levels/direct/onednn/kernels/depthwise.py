"""Gradients of the weight and the bias of a depthwise convolution, of images with channels last or
in blocks."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from golow.levels.direct.onednn.kernels import Kernel, parts

LINE = 16  # of depthwise.cpp
CODE = Path(__file__).with_suffix(".cpp").read_text(encoding="utf-8")


class Images(NamedTuple):
    """How images lie in memory: [images, blocks, pixels, columns], where blocks of columns are
    channels."""

    images: int
    blocks: int
    columns: int


class Taps(NamedTuple):
    """The kernel's size, its strides, distances between taps, and padding before an image; each
    down and across."""

    size: tuple[int, int]
    stride: tuple[int, int]
    distance: tuple[int, int]
    padding: tuple[int, int]


class Weight(NamedTuple):
    """Where the numbers of a weight are: channels in a block, and the distances between blocks,
    rows and columns."""

    block: int
    of_block: int
    of_row: int
    of_column: int


def weight_gradient(
    images: Images,
    image: tuple[int, int],
    result: tuple[int, int],
    taps: Taps,
    weight: Weight,
    biased: bool,
) -> Kernel:
    """Pointers: x, gradient of the result -> gradient of the weight[, of the bias]. image, result:
    rows and columns of their pixels."""
    lines = images.blocks * -(-images.columns // LINE)
    count = lines * (taps.size[0] * taps.size[1] + biased)
    products = images.images * images.blocks * images.columns * result[0] * result[1] * taps.size[0]
    sizes = (*images, *image, *result, *taps.size, *taps.stride, *taps.distance, *taps.padding)
    return Kernel(CODE, (*parts(count, products), *sizes, int(biased), *weight))
