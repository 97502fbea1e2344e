"""Blocks of pixels as channels, by a generated kernel or with NumPy."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import View
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.elements import Written, elements, input_name
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result
from golow.levels.direct.onednn.steps.strided_copies import strided, view_of
from golow.levels.direct.onednn.steps.strided_views import row_major
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle


def pixel_unshuffle(build: Builder, arguments: PixelUnshuffle) -> None:
    """A copy with the places within a block before the places of the blocks."""
    factor = arguments.factor
    if build.generates and 0 not in build.current.output().shape:
        _by_kernel(build, arguments)
        return

    def run(x: Any, y: Any) -> None:
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // factor, factor, w // factor, factor)
        y[...] = blocks.transpose(0, 1, 3, 5, 2, 4).reshape(y.shape)

    of_arrays(build, run, arguments.x)


def _by_kernel(build: Builder, arguments: PixelUnshuffle) -> None:
    x, factor = strided(build, arguments.x), arguments.factor
    n, c, h, w = x.shape
    view = view_of(x, x.shape)
    image, channel, line, pixel = view.strides
    sizes = n, c, factor, factor, h // factor, w // factor
    places = image, channel, line, pixel, line * factor, pixel * factor
    made = result(build)
    written = Written(input_name(0), View(x.dtype, row_major(sizes)))
    kernel = elements([], [view._replace(strides=places)], [written], sizes)
    build.steps.kernel(kernel, [x], [made])
    build.values.define(0, made)


IMPLEMENTATIONS = (Implementation(PixelUnshuffle, pixel_unshuffle),)
