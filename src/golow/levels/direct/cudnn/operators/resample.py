"""Images and volumes in another size, and the gradient, by golow's own kernels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import integers
from golow.levels.direct.cudnn.shared_kernels.geometry import VECTOR, channel_vector, flat
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.resample import Mode, Resample, ResampleBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
Size = tuple[int, int, int]  # depth, height, width
Steps = tuple[int, int, int, int]  # from one image, plane, row and pixel to the next, in elements


class Images(NamedTuple):
    """[n, depth, height, width, channels]; an image has one plane."""

    n: int
    size: Size
    channels: int

    @property
    def dense(self) -> Steps:
        """Steps without gaps."""
        depth, height, width = self.size
        pixel = self.channels
        return depth * height * width * pixel, height * width * pixel, width * pixel, pixel


def resample(build: Builder, arguments: Resample) -> None:
    """With the channels side by side, where the result will be joined if it will."""
    output, x = build.current.output(), build.values.image(arguments.x)
    layout = Layout(x.dtype, "channels_last", output.shape[1])
    result, there = None, build.concatenations.tensor(output.name, output.shape, layout)
    if there is not None and there.dtype == x.dtype:
        result = there if there.layout.strides(there.shape)[1] == 1 else None
    result = build.values.result(0, layout) if result is None else result
    source, target = _images(x.shape), _images(output.shape)
    kernel = forward(
        x.dtype, source, target.size, arguments.mode, _steps(x), _steps(result),
        result.offset // ITEM_BYTES[result.dtype],
    )  # fmt: skip
    build.steps.kernel(kernel, [x], [result])
    build.values.define(0, result)


def resample_backward(build: Builder, arguments: ResampleBackward) -> None:
    """The gradient of x, in the layout of that of the result."""
    outer, shape = build.values.image(arguments.gradient), build.current.output().shape
    images = _images(shape)
    result = build.values.result(0, outer.layout)
    kernel = backward(outer.dtype, images, _images(outer.shape).size, arguments.mode)
    build.steps.kernel(kernel, [outer], [result])
    build.values.define(0, result)


def _images(shape: tuple[int, ...]) -> Images:
    count, channels, *depth, height, width = shape
    return Images(count, (math.prod(depth), height, width), channels)


def _steps(tensor: Tensor) -> Steps:
    image, _, *plane, row, pixel = tensor.layout.strides(tensor.shape)
    return image, plane[0] if plane else 0, row, pixel


# ---------------------------------------------------------------- kernels


def forward(
    dtype: str, images: Images, size: Size, mode: Mode, source: Steps, target: Steps, start: int = 0
) -> Kernel:
    """Pointers: x -> y with these sizes of depth, height and width. source, target: how both are
    stored. start: elements from a multiple of 16 bytes to y."""
    each = channel_vector(dtype, images.channels)
    each = math.gcd(each, start, *(step for step in (*source, *target) if step))
    groups = images.channels // each
    count = images.n * math.prod(size) * groups
    scalars = (*_scalars(count, groups, images.size, size), *map(np.int64, (*source, *target)))
    return _launched("resample", dtype, each, mode, count, scalars)


def backward(dtype: str, images: Images, size: Size, mode: Mode) -> Kernel:
    """Pointers: dy -> dx, both without gaps. size: of the result's depth, height and width."""
    each = channel_vector(dtype, images.channels)
    groups = images.channels // each
    count = images.n * math.prod(images.size) * groups
    return _launched(
        "resample_backward", dtype, each, mode, count, _scalars(count, groups, images.size, size)
    )


def _scalars(count: int, groups: int, size: Size, result: Size) -> tuple[np.generic, ...]:
    return (np.int64(count), *integers(groups, *size, *result))


def _launched(
    name: str, dtype: str, each: int, mode: Mode, count: int, scalars: tuple[np.generic, ...]
) -> Kernel:
    linear = "true" if mode == "linear" else "false"
    grid, block = flat(max(count, 1), 1)
    expression = f"{name}<{C_TYPES[dtype]}, {each}, {linear}>"
    return Kernel(FILE, expression, grid, block, scalars, code=VECTOR)


IMPLEMENTATIONS = (
    Implementation(Resample, resample, refuse_integers),
    Implementation(ResampleBackward, resample_backward, refuse_integers),
)
