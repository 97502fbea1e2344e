"""Launches depthwise convolution for a shape. depthwise.cu has the mathematics."""

from __future__ import annotations

from dataclasses import replace
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
from golow.levels.direct.cudnn.shared_kernels.direct_convolution import (
    Convolution,
    with_parts_added,
)
from golow.levels.direct.cudnn.shared_kernels.geometry import channel_vector, require_floating
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, Clip

FILE = FOLDER / "depthwise.cu"
THREADS = 256
WALKERS = 8
LARGEST_KERNEL = 7
# Shared memory that every GPU has for a block; its filters fit in there as float32.
SHARED_BYTES = 48 << 10
SHARED_FLOATS = SHARED_BYTES // 4
# Threads that hide the latency of memory: 512 on each of 132 multiprocessors.
HIDING = 132 * 512


# Sums that a rolling thread keeps in registers.
MOST_SUMS = 64


class Tiling(NamedTuple):
    """How threads share the work: channels of a vector, vectors of a block, and adjacent pixels of
    a thread. run: the rows of the result that it computes one below the other, reading each row of
    the image once; 0 if it computes one row. rows, strips: of the result, by a block that first
    loads all that it reads; 0 if each thread loads what it reads itself."""

    width: int
    lanes: int
    strip: int
    run: int = 0
    rows: int = 0
    strips: int = 0

    def __str__(self) -> str:
        rolling = f"x{self.run}" if self.run else ""
        tile = f" tile {self.rows}x{self.strips * self.strip}" if self.rows else ""
        return f"{self.width}x{self.lanes}/{self.strip}{rolling}{tile}"


def forward(
    dtype: str,
    weight_dtype: str,
    convolution: Convolution,
    *,
    clip: Clip = NO_CLIP,
    formula: str = "",
    tiling: Tiling | None = None,
) -> Launches:
    """y = formula(clip(depthwise convolution + bias)); formula: C over ``value``, none if empty.

    Pointers: x, weight, bias, y. weight is [filters, R, S, 1], PyTorch's own order; bias [filters]
    is float32 and may be 0: absent. Raises ValueError if the groups are not the channels, if the
    window is larger than 7 x 7, and for other dtypes.
    """
    _check(dtype, weight_dtype, convolution)
    kernel = _slide("forward", dtype, weight_dtype, convolution, clip, tiling)
    if formula:
        kernel = kernel._replace(code=f"#define ACTIVATED(value) ({formula})\n{kernel.code}")
    return Launches((kernel,))


def backward_data(dtype: str, weight_dtype: str, convolution: Convolution) -> Launches:
    """The gradient of x. Pointers: dy, weight, dx."""
    _check(dtype, weight_dtype, convolution)
    if convolution.stride == (1, 1) and convolution.channels == convolution.filters:
        name, reverse = "backward_data_by_sliding", _reversed(convolution)
        return Launches((_slide(name, dtype, weight_dtype, reverse, NO_CLIP),))
    return Launches((_gather(dtype, weight_dtype, convolution),))


def backward_weight(dtype: str, convolution: Convolution) -> Launches:
    """The gradient of the weights in float32, [filters, R, S, 1]. Pointers: dy, x, dw, scratch."""
    _check(dtype, dtype, convolution)
    multiplier = convolution.filters // convolution.channels
    # A thread keeps taps x width sums in registers; warps load pairs of 16-bit floats efficiently.
    paired = multiplier == 1 and convolution.filters % 2 == 0 and convolution.taps <= 25
    width = 2 if paired else 1
    strip = 4 if convolution.out_width >= 4 and convolution.taps <= 25 else 1
    tiles = ceiling(convolution.filters, 32 * width)
    strips = _strips(convolution, strip)
    parts = max(min(ceiling(FULL_GRID, tiles), strips // (2 * WALKERS)), 1)
    numbers = f"{width}, {multiplier}, {strip}"
    sums = Kernel(
        FILE,
        f"backward_weight<{C_TYPES[dtype]}, {_window(convolution)}, {numbers}>",
        (parts, tiles, 1),
        (32, WALKERS, 1),
        _shape(convolution),
        code=_code(convolution),
    )
    return with_parts_added(sums, convolution.weights, parts)


# ------------------------------------------------------------ kernels


def tilings(dtype: str, convolution: Convolution) -> list[Tiling]:
    """Return the tilings among which the fastest is, the likeliest first.

    Vectors of four channels, eight to a block, were the fastest or near it for most of 16 shapes on
    an H100; for strides of two, wider ones took up to a quarter less. Adjacent pixels share loads
    and taps, but not if the stride leaves little to share or the GPU gets too few threads.
    """
    multiplier = convolution.filters // convolution.channels
    width = min(4, channel_vector(dtype, convolution.channels)) if multiplier == 1 else 1
    vectors = convolution.filters // width
    lanes = min(power_of_two(vectors), 8 if width > 1 else 32)
    strip = 2 if convolution.stride[1] > 1 else 4
    while strip > 1 and _strips(convolution, strip) * vectors < HIDING:
        strip //= 2
    strips = [strip, *(other for other in (7, 1) if other <= convolution.out_width)]
    sliding = [Tiling(width, lanes, strip) for strip in dict.fromkeys(strips)]
    rolling = _rolling(convolution, width, lanes)
    tiled = _tiled(dtype, convolution, width) if multiplier == 1 else []
    return [*sliding[: 2 if tiled else 3], *tiled, *rolling[: 1 if tiled else 3]]


def _tiled(dtype: str, convolution: Convolution, width: int) -> list[Tiling]:
    """Tilings whose blocks load all that they read at once: of many pixels, of half as many, and of
    many with fewer channels a thread, as far as they fit into shared memory. Seven rows and strips
    of seven pixels divide the images of most networks (224, 112, 56, 28, 14, 7)."""
    if convolution.taps == 1:
        return []
    rows = 7 if convolution.out_height % 7 == 0 else 8
    strip = 7 if convolution.out_width % 7 == 0 else 4
    widest = ceiling(min(convolution.out_width, 2 * strip), strip)
    tried = [(width, widest), (width, 1), (max(width // 2, 1), widest)]
    vectors = {w: convolution.filters // w for w in (width, max(width // 2, 1))}
    found = [
        Tiling(w, min(power_of_two(vectors[w]), 32 // w), strip, rows=rows, strips=strips)
        for w, strips in dict.fromkeys(tried)
    ]
    return [tiling for tiling in found if _tile_bytes(dtype, convolution, tiling) <= SHARED_BYTES]


def _tile_bytes(dtype: str, convolution: Convolution, tiling: Tiling) -> int:
    """Shared memory of a block: its pixels, each with a gap of 16 bytes after it, and its
    filters."""
    reach = [
        (size - 1) * stride + (taps - 1) * dilation + 1
        for size, stride, taps, dilation in zip(
            (tiling.rows, tiling.strips * tiling.strip),
            convolution.stride, convolution.kernel, convolution.dilation, strict=True,
        )
    ]  # fmt: skip
    channels = tiling.width * tiling.lanes
    pixel = channels * ITEM_BYTES[dtype] + 16
    return reach[0] * reach[1] * pixel + 4 * channels * convolution.taps


def _rolling(convolution: Convolution, width: int, lanes: int) -> list[Tiling]:
    """Tilings whose threads go down the image, where its rows are read more than once: with as many
    sums as registers hold and with half of them, and in runs as long as the GPU has enough threads,
    or half as long. They are not timed yet, so they come last."""
    rows, stride = convolution.kernel[0], convolution.stride[0]
    if rows <= stride or convolution.dilation[0] != 1:
        return []
    strip, open_rows = 4, ceiling(rows, stride)
    while strip > 1 and (strip * open_rows * width > MOST_SUMS or strip > convolution.out_width):
        strip //= 2
    found: list[Tiling] = []
    for tried in dict.fromkeys((strip, max(strip // 2, 1))):
        runs, vectors = 1, convolution.filters // width
        across = convolution.images * ceiling(convolution.out_width, tried) * vectors
        while across * runs < HIDING and runs * 4 <= convolution.out_height:
            runs *= 2
        found.append(Tiling(width, lanes, tried, ceiling(convolution.out_height, runs)))
    shorter = found[0]._replace(run=ceiling(found[0].run, 2))
    return list(dict.fromkeys([*found, shorter]))


def _slide(
    name: str,
    dtype: str,
    weight_dtype: str,
    convolution: Convolution,
    clip: Clip,
    tiling: Tiling | None = None,
) -> Kernel:
    multiplier = convolution.filters // convolution.channels
    width, lanes, strip, run, rows, strips = tiling = tiling or tilings(dtype, convolution)[0]
    vectors = convolution.filters // width
    types = f"{C_TYPES[dtype]}, {C_TYPES[weight_dtype]}, {_window(convolution)}"
    scalars = (*_shape(convolution), *floats(*clip))
    if rows:
        across = ceiling(convolution.out_width, strips * strip)
        tiles = convolution.images * ceiling(convolution.out_height, rows) * across
        numbers = f"{width}, {lanes}, {multiplier}, {strip}, {rows}, {strips}"
        grid, block = (tiles, ceiling(vectors, lanes), 1), (lanes, rows * strips, 1)
        name, code = f"{name}_in_tiles<{types}, {numbers}>", _code(convolution)
        return Kernel(FILE, name, grid, block, scalars, code=code)
    places = _strips(convolution, strip)
    if run:
        name, scalars = f"{name}_rolling", (*scalars, *integers(run))
        places = places // convolution.out_height * ceiling(convolution.out_height, run)
    return _over_pixels(
        f"{name}<{types}, {width}, {lanes}, {multiplier}, {strip}>",
        lanes,
        ceiling(vectors, lanes),
        places,
        scalars,
        _code(convolution),
    )


def _gather(dtype: str, weight_dtype: str, convolution: Convolution) -> Kernel:
    """The gradient of x for strides: each pixel looks up the windows that read it."""
    multiplier = convolution.filters // convolution.channels
    width = channel_vector(dtype, convolution.channels) if multiplier == 1 else 1
    vectors = convolution.channels // width
    lanes = min(power_of_two(vectors), 16 if width > 1 else 32)
    while lanes * width * multiplier * convolution.taps > SHARED_FLOATS:
        lanes //= 2
    if not lanes:
        raise ValueError(f"{multiplier} filters for each channel of a depthwise convolution")
    types = f"{C_TYPES[dtype]}, {C_TYPES[weight_dtype]}, {_window(convolution)}"
    return _over_pixels(
        f"backward_data<{types}, {width}, {lanes}, {multiplier}>",
        lanes,
        ceiling(vectors, lanes),
        convolution.images * convolution.height * convolution.width,
        _shape(convolution),
        _code(convolution),
    )


def _over_pixels(
    expression: str, lanes: int, tiles: int, places: int, scalars: tuple[np.generic, ...], code: str
) -> Kernel:
    """One launch over ``places`` positions of images, for tiles of channels. A block loads its
    filters once and then iterates over positions."""
    walkers = THREADS // lanes
    blocks = max(min(ceiling(places, walkers), ceiling(4 * FULL_GRID, tiles)), 1)
    return Kernel(FILE, expression, (blocks, tiles, 1), (lanes, walkers, 1), scalars, code=code)


def _reversed(convolution: Convolution) -> Convolution:
    """The convolution with stride 1 that computes the gradient of x from that of y."""
    reach = [
        dilation * (taps - 1)
        for dilation, taps in zip(convolution.dilation, convolution.kernel, strict=True)
    ]
    return replace(
        convolution,
        height=convolution.out_height,
        width=convolution.out_width,
        out_height=convolution.height,
        out_width=convolution.width,
        padding=(reach[0] - convolution.padding[0], reach[1] - convolution.padding[1]),
        image_pitch=convolution.output_pitch,
        output_pitch=convolution.image_pitch,
    )


def _code(convolution: Convolution) -> str:
    """The code before the kernels, with the pitches of images that have gaps."""
    pitches = {"X_PITCH": convolution.image_pitch, "Y_PITCH": convolution.output_pitch}
    lines = (f"#define {name} {pitch}\n" for name, pitch in pitches.items() if pitch)
    return "".join(lines) + CODE


def _window(convolution: Convolution) -> str:
    numbers = (*convolution.kernel, *convolution.stride, *convolution.dilation)
    return f"Window<{', '.join(map(str, numbers))}>"


def _shape(convolution: Convolution) -> tuple[np.generic, ...]:
    images = (convolution.images, convolution.height, convolution.width)
    channels = (convolution.channels, convolution.filters)
    return integers(
        *images, *channels, convolution.out_height, convolution.out_width, *convolution.padding
    )


def _strips(convolution: Convolution, strip: int) -> int:
    return convolution.images * convolution.out_height * ceiling(convolution.out_width, strip)


def _check(dtype: str, weight_dtype: str, convolution: Convolution) -> None:
    require_floating(dtype=dtype)
    require_floating(weight_dtype=weight_dtype)
    if convolution.groups != convolution.channels:
        raise ValueError(f"a depthwise convolution has as many groups as channels: {convolution}")
    if max(convolution.kernel) > LARGEST_KERNEL:
        raise ValueError(f"depthwise kernels go up to 7 x 7: {convolution}")
