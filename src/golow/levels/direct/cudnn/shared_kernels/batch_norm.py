"""Launches batch norm for a shape: a small image at once, a larger one in parts.
batch_norm.cu and batch_norm_backward.cu have the mathematics.

The limits come from an H200, where both strategies were timed at all shapes of ResNet-50 for ten
input sizes (benchmarks/gpu_batch_norm.py). With these limits, the batch norms of a step take 3%
longer on average than with the fastest tiling that was tried at each shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf, nan
from pathlib import Path
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
    power_of_two,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    approximate,
    channel_vector,
    require_floating,
)
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, Clip

FORWARD = FOLDER / "batch_norm.cu"
BACKWARD = FOLDER / "batch_norm_backward.cu"
LARGEST_CLUSTER = 8  # every GPU with clusters supports this size
# Up to this many bytes of an image and rows of a thread, one launch is faster than three. A cluster
# for every few channels leaves most of the GPU idle.
AT_ONCE_BYTES, AT_ONCE_ROWS = 2 << 20, 4
# From this many bytes of an image, parts are as wide as a warp; below, narrow ones are faster.
WIDE_BYTES = 20 << 20
# Arguments that the three kernels of an image in parts read and write, by their pointers' indices:
# the sums' kernel, the one that joins them, the result's.
FORWARD_TOUCHED = (
    frozenset((0, 10)), frozenset((5, 6, 7, 8, 10)), frozenset((0, 1, 2, 3, 4, 5, 6, 9))
)  # fmt: skip
GRADIENTS, IMAGES = frozenset((0, 1)), frozenset((2, 3, 4, 5, 6, 7))
JOINED = frozenset((9, 10, 12))
BACKWARD_TOUCHED = (GRADIENTS | IMAGES | {11, 12}, JOINED, IMAGES | {8, 9, 10, 11})
BACKWARD_WITHOUT_RESIDUAL = (GRADIENTS | IMAGES | {12}, JOINED, GRADIENTS | IMAGES | {8, 9, 10})
JOINING = (8, 64)  # channels of a block that merges parts, and threads for each channel


class Tiling(NamedTuple):
    """A block of lanes x walkers threads: lanes read adjacent vectors of `width` channels, walkers
    read different rows. The grid has tiles of channels and parts of the rows."""

    width: int
    lanes: int
    walkers: int
    tiles: int
    parts: int

    @property
    def block(self) -> tuple[int, int, int]:
        return (self.lanes, self.walkers, 1)


class SomePixels(NamedTuple):
    """Every step-th pixel, down and across, of images of that height and width."""

    height: int
    width: int
    down: int
    across: int


def batch_norm(
    dtype: str,
    rows: int,
    channels: int,
    *,
    momentum: float,
    epsilon: float,
    clip: Clip = NO_CLIP,
    formula: str = "",
    pitch: int = 0,
    clusters: bool = True,
) -> Launches:
    """Training: y = formula(clip((x - mean) / sqrt(variance + epsilon) * scale + shift + added)).

    added: the residual. formula: C over ``value``, none if empty. pitch: elements from one row of y
    to the next, if there are gaps.

    Pointers: x, residual, scale, shift, y, mean, inverse_deviation, running_mean, running_variance,
    mask, scratch. Images are [rows, channels] of the dtype. The mask of `mask_bytes` states where y
    was clipped. All others are [channels] of float32. residual, scale, shift, the running
    statistics and mask may be 0: absent. The running statistics are updated in place by momentum,
    with the unbiased variance. y may alias x or residual if it has no gaps.

    clusters: whether the GPU has them (sm_90 and later). Raises ValueError for other dtypes and for
    empty images.
    """
    tiling, at_once = _tiling(dtype, rows, channels, clusters)
    sizes, limits = integers(rows, channels), _limits(clip)
    activated = approximate(formula, dtype)
    code = _defining({"ACTIVATED(value)": activated, "RESULT_PITCH": pitch})
    kind, statistics = C_TYPES[dtype], floats(momentum, epsilon)
    if at_once:
        return Launches((_at_once(FORWARD, kind, tiling, (*sizes, *limits, *statistics), code),))
    return Launches(
        (
            _sums(FORWARD, "moments_of_parts", kind, tiling, sizes, CODE),
            _join(FORWARD, "", channels, (*sizes, np.int32(tiling.parts), *statistics)),
            _result(FORWARD, "normalize", kind, tiling, (*sizes, *limits), code),
        ),
        scratch=2 * tiling.parts * channels,
        touched=FORWARD_TOUCHED,
    )


def batch_norm_backward(
    dtype: str,
    rows: int,
    channels: int,
    *,
    clip: Clip = NO_CLIP,
    formula: str = "",
    masked: bool = False,
    second: SomePixels | None = None,
    residual: bool = True,
    pitches: tuple[int, int] = (0, 0),
    clusters: bool = True,
) -> Launches:
    """The gradients of `batch_norm` with that clip, or with an activation that does not clip.

    Pointers: gradient, second, mask, x, scale, shift, mean, inverse_deviation, dx, dscale, dshift,
    dresidual, scratch. gradient, second, x, dx and dresidual are [rows, channels] of the dtype; all
    others except the mask are [channels] of float32. second (0: absent) is added to the gradient.
    scale, shift and dresidual may be 0: absent. dx may alias gradient, second or x; dresidual may
    alias gradient or second.

    masked: the mask that `batch_norm` wrote states where y was clipped. Otherwise mask is 0, and
    the clipped elements are found from x, scale and shift; this is valid only without a residual.

    second: the pixels that the second gradient has, side by side; all if None. It may alias nothing
    if it has some. residual: whether dresidual is there.

    formula: C over ``gradient`` and ``value``, the gradient of the activation from that of its
    result and its argument, which is computed again from x, scale and shift. Raises ValueError with
    a clip, or with dresidual.

    pitches: elements from one row of gradient, and of second, to the next; 0 if there are no gaps.
    What has gaps aliases nothing.
    """
    tiling, at_once = _tiling(dtype, rows, channels, clusters)
    if formula and (residual or clip != NO_CLIP):
        raise ValueError("the gradient of an activation beside that of a clip or a residual")
    mask = "NONE" if clip == NO_CLIP else "BITS" if masked else "AGAIN"
    mask = "FUNCTION" if formula else mask
    names = ("ACTIVATED_GRADIENT(gradient, value)", "GRADIENT_PITCH", "SECOND_PITCH")
    texts = (approximate(formula, dtype), *pitches)
    code = _defining(dict(zip(names, texts, strict=True)))
    sizes, limits = integers(rows, channels), _limits(clip)
    pixels = "AllPixels" if second is None else f"SomePixels<{', '.join(map(str, second))}>"
    kind = f"{C_TYPES[dtype]}, {mask}, {pixels}"
    if at_once:
        return Launches((_at_once(BACKWARD, kind, tiling, (*sizes, *limits), code),))
    return Launches(
        (
            _sums(BACKWARD, "sums_of_parts", kind, tiling, (*sizes, *limits), code),
            _join(BACKWARD, f"{C_TYPES[dtype]}, ", channels, (*sizes, np.int32(tiling.parts))),
            _result(BACKWARD, "differentiate", kind, tiling, (*sizes, *limits), code),
        ),
        scratch=2 * tiling.parts * channels,
        touched=BACKWARD_TOUCHED if residual else BACKWARD_WITHOUT_RESIDUAL,
    )


def mask_bytes(dtype: str, rows: int, channels: int) -> int:
    """Return the size of the mask of clipped elements: a byte for each vector."""
    return rows * channels // channel_vector(dtype, channels)


# ------------------------------------------------------------ tilings


def _tiling(dtype: str, rows: int, channels: int, clusters: bool) -> tuple[Tiling, bool]:
    """Return the tiling, and whether one launch does everything."""
    _check(rows, channels)
    at_once = _tiling_at_once(dtype, rows, channels, LARGEST_CLUSTER if clusters else 1)
    small = rows * channels * ITEM_BYTES[dtype] <= AT_ONCE_BYTES
    if small and ceiling(rows, at_once.walkers * at_once.parts) <= AT_ONCE_ROWS:
        return at_once, True
    return _tiling_in_parts(dtype, rows, channels), False


def _tiling_at_once(dtype: str, rows: int, channels: int, largest: int) -> Tiling:
    require_floating(dtype=dtype)
    width = channel_vector(dtype, channels)
    vectors = channels // width
    # Narrow tiles make more blocks, and memory transfers at least 32 bytes. With many channels,
    # wider tiles are kinder to the cache.
    row_bytes = 64 if channels * ITEM_BYTES[dtype] >= 2048 else 32
    lanes = min(row_bytes // (width * ITEM_BYTES[dtype]), power_of_two(vectors))
    walkers = max(min(power_of_two(rows), 512 // lanes), 32 // lanes)
    parts = min(power_of_two(ceiling(rows, 4 * walkers)), largest)
    return Tiling(width, lanes, walkers, ceiling(vectors, lanes), parts)


def _tiling_in_parts(dtype: str, rows: int, channels: int) -> Tiling:
    require_floating(dtype=dtype)
    width = channel_vector(dtype, channels)
    vectors, item = channels // width, ITEM_BYTES[dtype]
    row_bytes = 512 if rows * channels * item > WIDE_BYTES else 128
    lanes = min(power_of_two(vectors), row_bytes // (width * item), 32)
    walkers = 256 // lanes
    tiles = ceiling(vectors, lanes)
    parts = max(min(ceiling(FULL_GRID, tiles), ceiling(rows, 4 * walkers)), 1)
    parts = ceiling(rows, ceiling(rows, parts))  # none without rows
    return Tiling(width, lanes, walkers, tiles, parts)


def _limits(clip: Clip) -> tuple[np.generic, ...]:
    """NaN stands for a missing limit: no comparison with NaN holds, so an infinite result does not
    count as clipped, as in PyTorch."""
    return floats(*(nan if isinf(limit) else limit for limit in clip))


def _check(rows: int, channels: int) -> None:
    if rows < 1 or channels < 1:
        raise ValueError(f"batch norm of {rows} rows, {channels} channels: at least one of each")


# ------------------------------------------------------------ kernels


def _defining(macros: Mapping[str, object]) -> str:
    """The code before the kernels, with those macros that stand for something."""
    return "".join(f"#define {name} ({text})\n" for name, text in macros.items() if text) + CODE


def _at_once(
    file: Path, kind: str, tiling: Tiling, scalars: tuple[np.generic, ...], code: str
) -> Kernel:
    numbers = f"{tiling.width}, {tiling.lanes}, {tiling.walkers}, {tiling.parts}"
    grid = (tiling.tiles * tiling.parts, 1, 1)
    return Kernel(file, f"at_once<{kind}, {numbers}>", grid, tiling.block, scalars, code=code)


def _sums(
    file: Path, name: str, kind: str, tiling: Tiling, scalars: tuple[np.generic, ...], code: str
) -> Kernel:
    expression = f"{name}<{kind}, {tiling.width}, {tiling.lanes}, {tiling.walkers}>"
    grid = (tiling.parts, tiling.tiles, 1)
    return Kernel(file, expression, grid, tiling.block, scalars, code=code)


def _join(file: Path, kind: str, channels: int, scalars: tuple[np.generic, ...]) -> Kernel:
    width, lanes = JOINING
    expression = f"join_parts<{kind}{width}, {lanes}>"
    grid = (ceiling(channels, width), 1, 1)
    return Kernel(file, expression, grid, (width, lanes, 1), scalars, code=CODE)


def _result(
    file: Path, name: str, kind: str, tiling: Tiling, scalars: tuple[np.generic, ...], code: str
) -> Kernel:
    expression = f"{name}<{kind}, {tiling.width}>"
    grid = (tiling.parts, tiling.tiles, 1)
    return Kernel(file, expression, grid, tiling.block, scalars, code=code)
