"""Blocks of pixels as channels, with NumPy."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle


def pixel_unshuffle(build: Builder, arguments: PixelUnshuffle) -> None:
    """A copy with the places within a block before the places of the blocks."""
    factor = arguments.factor

    def run(x: Any, y: Any) -> None:
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // factor, factor, w // factor, factor)
        y[...] = blocks.transpose(0, 1, 3, 5, 2, 4).reshape(y.shape)

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (Implementation(PixelUnshuffle, pixel_unshuffle),)
