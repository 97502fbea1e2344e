"""Convolutions whose windows lie side by side, as a product of their patches: the first layers of
vision transformers. cuDNN's engines for them take several times as long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.cublaslt import Problem
from golow.levels.vendor.cudnn.epilogue import PASS_NS
from golow.levels.vendor.cudnn.gathering import copy, whole
from golow.levels.vendor.cudnn.layouts import TENSOR_ALIGNMENT, Layout
from golow.levels.vendor.cudnn.products import Convolution
from golow.levels.vendor.cudnn.steps import Tensor
from golow.levels.vendor.formulas import NO_CLIP, RELU
from golow.levels.vendor.views import View

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder
    from golow.levels.vendor.cudnn.engines import Engines

LARGE = 64  # pixels of a window from which on the product is taken without timing


def as_patches(operation: Convolution) -> Problem | None:
    """Return the product of all patches, [pixels of the result, R * S * C], with the weight; None
    if windows overlap or do not cover the image, or something else than relu follows."""
    rows, columns = operation.kernel
    _, channels, height, width = operation.image
    beside = operation.stride == operation.kernel and not any(operation.padding)
    covered = height % rows == 0 and width % columns == 0
    follows = operation.clip not in (NO_CLIP, RELU) or operation.activation is not None
    if not beside or not covered or follows or rows * columns == 1:
        return None
    if operation.groups > 1 or operation.dilation != (1, 1) or operation.direction != "forward":
        return None
    images, filters, *pixels = operation.output
    return Problem(
        m=images * math.prod(pixels),
        n=filters,
        k=rows * columns * channels,
        dtype=operation.dtype,
        result=operation.result,
        arithmetic=operation.arithmetic,
        transpose_b=True,
        bias=operation.bias,
        residual=operation.residual,
        relu=operation.clip == RELU,
        alignment=TENSOR_ALIGNMENT,
    )


def is_faster(engines: Engines, problem: Problem, operation: Convolution) -> bool:
    """Whether copy and product take less time than the convolution: as timed, or else if windows
    are large."""
    if not engines.times:
        return math.prod(operation.kernel) >= LARGE
    copied = engines.gpu.plain_ns(2 * operation.operand_bytes[0], 0) + PASS_NS
    return engines.time_of(problem) + copied < engines.time_of(operation)


def patches(build: Builder, image: Tensor, operation: Convolution) -> Tensor:
    """Add a copy of the image's patches, row by row in the order of the weight: row and column in
    the window, channel."""
    images, channels, _, width = operation.image
    (rows, columns), (down, across) = operation.kernel, operation.output[2:]
    shape = (images, down, across, rows, columns * channels)
    line = width * channels
    steps = (down * rows * line, rows * line, columns * channels, line, 1)
    result = build.new(f"{build.node.name}.patches", shape, Layout(operation.dtype))
    copy(build, image, View(image.dtype, steps), result, whole(result), shape, "reshape")
    return result
