"""How batch norm is launched for a shape: at once where a cluster's rows stay in the cache, else in
parts. The mathematics stands in batch_norm.cu and batch_norm_backward.cu."""

from __future__ import annotations

from math import isinf, nan
from typing import NamedTuple

import numpy as np

from golow.levels.cudnn.kernels import C_TYPES, ITEM_BYTES, Kernel
from golow.levels.cudnn.kernels.blocks import (
    CODE,
    FULL_GRID,
    NO_CLIP,
    Clip,
    Launches,
    ceiling,
    floats,
    integers,
    power_of_two,
)
from golow.levels.cudnn.kernels.geometry import channel_vector, require_floating

FORWARD = "batch_norm.cu"
BACKWARD = "batch_norm_backward.cu"
LARGEST_CLUSTER = 8  # what every GPU with clusters has
JOINING_LANES = 16


class Tiling(NamedTuple):
    """A block of lanes x walkers threads: vectors of `width` channels side by side, and rows below
    one another. Tiles of channels and parts of the rows make the grid."""

    width: int
    lanes: int
    walkers: int
    tiles: int
    parts: int

    @property
    def block(self) -> tuple[int, int, int]:
        return (self.lanes, self.walkers, 1)


def batch_norm(
    dtype: str,
    rows: int,
    channels: int,
    *,
    momentum: float,
    epsilon: float,
    clip: Clip = NO_CLIP,
    clusters: bool = True,
) -> Launches:
    """Training: y = clip((x - mean) / sqrt(variance + epsilon) * scale + shift + residual).

    Pointers: x, residual, scale, shift, y, mean, inverse_deviation, running_mean, running_variance,
    scratch. Images are [rows, channels] of the dtype, all others [channels] of float32. residual,
    scale, shift and the running statistics may be 0: absent. The latter are updated in place by
    momentum, with the unbiased variance. y may stand in the place of x or residual.

    clusters: whether the GPU has them (sm_90 and later). Raises ValueError for other dtypes and for
    empty images.
    """
    tiling, at_once = _tiling(dtype, rows, channels, clusters)
    sizes, limits = integers(rows, channels), floats(*clip)
    statistics = floats(momentum, epsilon)
    if at_once:
        return Launches((_at_once(FORWARD, dtype, tiling, (*sizes, *limits, *statistics)),))
    joined = integers(rows, channels, tiling.parts)
    return Launches(
        (
            _sums(FORWARD, "moments_of_parts", dtype, tiling, sizes),
            _join(FORWARD, channels, (*joined, *statistics)),
            _result(FORWARD, "normalize", dtype, rows, channels, limits),
        ),
        scratch=2 * tiling.parts * channels,
    )


def batch_norm_backward(
    dtype: str, rows: int, channels: int, *, clip: Clip = NO_CLIP, clusters: bool = True
) -> Launches:
    """The gradients of `batch_norm` with that clip.

    Pointers: gradient, y, x, scale, mean, inverse_deviation, dx, dscale, dshift, dresidual,
    scratch. gradient, y, x, dx and dresidual are [rows, channels] of the dtype, all others
    [channels] of float32. y, which says where it was clipped, is 0 without a clip; scale and
    dresidual may be 0: absent. dx and dresidual may stand in the place of gradient, y or x.
    """
    tiling, at_once = _tiling(dtype, rows, channels, clusters)
    # NaN: no comparison with it holds, so an infinite y passes its gradient on, as in PyTorch.
    limits = floats(*(nan if isinf(limit) else limit for limit in clip))
    scalars = (*integers(rows, channels), *limits)
    if at_once:
        return Launches((_at_once(BACKWARD, dtype, tiling, scalars),))
    return Launches(
        (
            _sums(BACKWARD, "sums_of_parts", dtype, tiling, scalars),
            _join(BACKWARD, channels, integers(channels, tiling.parts)),
            _result(BACKWARD, "differentiate", dtype, rows, channels, limits),
        ),
        scratch=2 * tiling.parts * channels,
    )


def batch_norm_inference(dtype: str, rows: int, channels: int, *, clip: Clip = NO_CLIP) -> Kernel:
    """y = clip(x * factor + offset + residual).

    Pointers: x, residual (0: absent), factor [channels], offset [channels] (float32), y.
    """
    _check(rows, channels)
    return _result(FORWARD, "scale_and_shift", dtype, rows, channels, floats(*clip))


# ------------------------------------------------------------ tilings


def _tiling(dtype: str, rows: int, channels: int, clusters: bool) -> tuple[Tiling, bool]:
    """The tiling, and whether everything happens in one launch."""
    _check(rows, channels)
    at_once = _tiling_at_once(dtype, rows, channels, LARGEST_CLUSTER if clusters else 1)
    # 16 vectors of 16 bytes for each of 512 threads: 128 KiB, which the second reading finds in L1.
    if ceiling(rows, at_once.walkers * at_once.parts) <= 16:
        return at_once, True
    return _tiling_in_parts(dtype, rows, channels), False


def _tiling_at_once(dtype: str, rows: int, channels: int, largest: int) -> Tiling:
    require_floating(dtype=dtype)
    width = channel_vector(dtype, channels)
    vectors = channels // width
    # Narrow tiles make more blocks: 32 bytes of a row are what memory hands out at least. Where
    # there are many channels, wider ones spare the cache.
    row_bytes = 64 if channels * ITEM_BYTES[dtype] >= 2048 else 32
    lanes = min(row_bytes // (width * ITEM_BYTES[dtype]), power_of_two(vectors))
    walkers = max(min(power_of_two(rows), 512 // lanes), 32 // lanes)
    parts = min(power_of_two(ceiling(rows, 4 * walkers)), largest)
    return Tiling(width, lanes, walkers, ceiling(vectors, lanes), parts)


def _tiling_in_parts(dtype: str, rows: int, channels: int) -> Tiling:
    require_floating(dtype=dtype)
    width = channel_vector(dtype, channels)
    vectors = channels // width
    lanes = min(power_of_two(vectors), 32)
    walkers = 256 // lanes
    tiles = ceiling(vectors, lanes)
    parts = max(min(ceiling(FULL_GRID, tiles), ceiling(rows, 4 * walkers)), 1)
    parts = ceiling(rows, ceiling(rows, parts))  # none without rows
    return Tiling(width, lanes, walkers, tiles, parts)


def _check(rows: int, channels: int) -> None:
    if rows < 1 or channels < 1:
        raise ValueError(f"batch norm of {rows} rows, {channels} channels: at least one of each")


# ------------------------------------------------------------ kernels


def _at_once(file: str, dtype: str, tiling: Tiling, scalars: tuple[np.generic, ...]) -> Kernel:
    numbers = f"{tiling.width}, {tiling.lanes}, {tiling.walkers}, {tiling.parts}"
    return Kernel(
        file,
        f"at_once<{C_TYPES[dtype]}, {numbers}>",
        (tiling.tiles * tiling.parts, 1, 1),
        tiling.block,
        scalars,
        code=CODE,
    )


def _sums(
    file: str, name: str, dtype: str, tiling: Tiling, scalars: tuple[np.generic, ...]
) -> Kernel:
    return Kernel(
        file,
        f"{name}<{C_TYPES[dtype]}, {tiling.width}, {tiling.lanes}, {tiling.walkers}>",
        (tiling.parts, tiling.tiles, 1),
        tiling.block,
        scalars,
        code=CODE,
    )


def _join(file: str, channels: int, scalars: tuple[np.generic, ...]) -> Kernel:
    return Kernel(
        file,
        f"join_parts<{JOINING_LANES}>",
        (ceiling(channels, 32), 1, 1),
        (32, JOINING_LANES, 1),
        scalars,
        code=CODE,
    )


def _result(
    file: str, name: str, dtype: str, rows: int, channels: int, limits: tuple[np.generic, ...]
) -> Kernel:
    tiling = _tiling_in_parts(dtype, rows, channels)
    return Kernel(
        file,
        f"{name}<{C_TYPES[dtype]}, {tiling.width}>",
        (tiling.parts, tiling.tiles, 1),
        tiling.block,
        (*integers(rows, channels), *limits),
        code=CODE,
    )
