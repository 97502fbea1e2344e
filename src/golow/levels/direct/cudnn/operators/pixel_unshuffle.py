"""Blocks of pixels as channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.steps.strided_copies import copy
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import View
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def pixel_unshuffle(build: Builder, arguments: PixelUnshuffle) -> None:
    """A copy."""
    output = build.current.output()
    images, depth, height, width = output.shape
    tensor, factor = build.values.tensor(arguments.x), arguments.factor
    n, c, h, w = tensor.layout.strides(tensor.shape)
    result = build.memory.new(output.name, output.shape, Layout(tensor.dtype))
    area, block = height * width, factor * factor
    source = View(tensor.dtype, (n, c, h, w, factor * h, factor * w))
    target = View(tensor.dtype, (depth * area, block * area, factor * area, area, width, 1))
    shape = (images, depth // block, factor, factor, height, width)
    copy(build, tensor, source, result, target, shape)
    build.values.define(0, result)


IMPLEMENTATIONS = (Implementation(PixelUnshuffle, pixel_unshuffle),)
