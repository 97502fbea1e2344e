"""Blocks of 2x2 pixels as channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.kernels import ITEM_BYTES
from golow.levels.vendor.cudnn.kernels.strided import strided_copy
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.implementation import Implementation, Question
from golow.lower.operators.pixel_unshuffle import PixelUnshuffle

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def pixel_unshuffle(build: Builder, arguments: PixelUnshuffle) -> None:
    """Copy the even and then the odd rows; an input is read from its batch in this form."""
    images, depth, height, width = build.output().shape
    if build.is_input(arguments.x):
        # Tensor cores load multiples of this many channels.
        each = 16 // ITEM_BYTES[build.types.computed]
        build.define(0, build.fetched_blocks(arguments.x, -(-depth // each) * each))
        return
    tensor = build.tensor(arguments.x)
    n, c, h, w = tensor.layout.strides(tensor.shape)
    layout = Layout(tensor.dtype)
    result = build.new(build.output().name, build.output().shape, layout)
    area = height * width
    for row in (0, 1):
        kernel = strided_copy(
            tensor.dtype,
            tensor.dtype,
            (images, depth // 4, 2, height, width),
            (n, c, w, 2 * h, 2 * w),
            (depth * area, 4 * area, area, width, 1),
            row * h,
            2 * row * area,
        )
        build.kernel(kernel, [tensor], [result])
    build.define(0, result)


def _refuse(arguments: PixelUnshuffle, question: Question) -> str:
    return "" if arguments.factor == 2 else f"{question.node.op} by {arguments.factor}"


IMPLEMENTATIONS = (Implementation(PixelUnshuffle, pixel_unshuffle, _refuse),)
