"""Convolutions whose windows are adjacent, and the gradients of their weights, as a product of
patches: the first layers of vision transformers. cuDNN's engines take several times as long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.epilogue import copy_ns
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import TENSOR_ALIGNMENT, Layout
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.strided_copies import copy, whole
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, RELU
from golow.levels.direct.kernel_views import View

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder
    from golow.levels.direct.cudnn.engines.engines import Engines

LARGE = 64  # pixels of a window from which on the product is taken without timing


def as_patches(operation: Convolution) -> Problem | None:
    """Return the product of all patches, [pixels of the result, R * S * C], with the weight, or
    that of the result's gradient with them, which is the gradient of the weight. None if windows
    overlap or do not cover the image, if something else than relu follows, or for the gradient of
    the image."""
    follows = operation.clip not in (NO_CLIP, RELU) or operation.activation is not None
    if follows or operation.direction == "backward_data" or not _lie_side_by_side(operation):
        return None
    images, filters, *pixels = operation.output
    rows = images * math.prod(pixels)
    columns = math.prod(operation.kernel) * operation.image[1]
    of_weight = operation.direction == "backward_weight"
    return Problem(
        m=filters if of_weight else rows,
        n=columns if of_weight else filters,
        k=rows if of_weight else columns,
        dtype=operation.dtype,
        result=operation.result,
        arithmetic=operation.arithmetic,
        transpose_a=of_weight,
        transpose_b=not of_weight,
        bias=operation.bias,
        residual=operation.residual,
        relu=operation.clip == RELU,
        alignment=TENSOR_ALIGNMENT,
        frozen=operation.frozen,
        cold=operation.cold,
    )


def _lie_side_by_side(operation: Convolution) -> bool:
    """True if windows of several pixels cover the image, each pixel once."""
    sizes = zip(operation.image[2:], operation.kernel, strict=True)
    covered = all(size % window == 0 for size, window in sizes)
    beside = operation.stride == operation.kernel and not any(operation.padding)
    plain = operation.groups == 1 and operation.dilation == (1, 1)
    return covered and beside and plain and operation.kernel != (1, 1)


def is_faster(engines: Engines, problem: Problem, operation: Convolution) -> bool:
    """True if copy and product take less time than the convolution: as timed, or else if windows
    are large."""
    if not engines.times:
        return math.prod(operation.kernel) >= LARGE
    return _patches_ns(engines, problem, operation) < engines.time_of(operation)


def fastest_ns(engines: Engines, operation: Convolution) -> float:
    """Nanoseconds of the convolution as timed, directly or as a product of patches."""
    time, problem = engines.time_of(operation), as_patches(operation)
    return time if problem is None else min(time, _patches_ns(engines, problem, operation))


def _patches_ns(engines: Engines, problem: Problem, operation: Convolution) -> float:
    """Nanoseconds of the product, with the copy of the patches before it."""
    return engines.time_of(problem) + copy_ns(engines, 2 * operation.operand_bytes[0])


def patches(build: Builder, image: Tensor, operation: Convolution) -> Tensor:
    """Add a copy of the image's patches, row by row in the order of the weight: row and column in
    the window, channel."""
    images, channels, _, width = operation.image
    (rows, columns), (down, across) = operation.kernel, operation.output[2:]
    shape = (images, down, across, rows, columns * channels)
    line = width * channels
    steps = (down * rows * line, rows * line, columns * channels, line, 1)
    result = build.memory.new(f"{build.current.name}.patches", shape, Layout(operation.dtype))
    copy(build, image, View(image.dtype, steps), result, whole(result), shape, "reshape")
    return result
