"""Sums and means over axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.refusing import beyond_kernel
from golow.levels.direct.cudnn.problems.layouts import Layout, fills_memory, pitch_in, pitch_of
from golow.levels.direct.cudnn.shared_kernels.lines import fold
from golow.levels.direct.cudnn.shared_kernels.reduction import reduction
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.cudnn.steps.strided_copies import axes_last
from golow.levels.direct.cudnn.steps.sums import add_up
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating
from golow.levels.direct.split_axes import rows_in_memory
from golow.lower.ir.graph import Ref
from golow.lower.operators.reduce import Reduce

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

Shape = tuple[int, ...]
PIXELS, ALL_BUT_CHANNELS = (2, 3), (0, 2, 3)  # of an image


def reduce(build: Builder, arguments: Reduce) -> None:
    """Over axes that are neighbours in memory, as they are there, such as all but the first one of
    the weight of a convolution; for images also over all axes except the channels. Over all axes
    but the last one as rows are stored, whose order does not matter."""
    shape = build.current.value(arguments.x).shape
    if arguments.function not in ("sum", "mean") or build.current.output().dtype != "float32":
        _folded(build, arguments)
        return
    rows = _as_rows_lie(build, arguments.x)
    if arguments.axes == tuple(range(len(shape) - 1)) and rows is not None:
        tensor, pitch = rows
        sizes = (1, math.prod(shape[:-1]), shape[-1])
        add_up(build, tensor, sizes, 0, _factor(arguments, sizes[1]), pitch)
        return
    if _is_image(shape) and arguments.axes == ALL_BUT_CHANNELS:
        tensor = build.values.image(arguments.x)
        sizes = (1, math.prod(shape) // shape[1], shape[1])
        add_up(build, tensor, sizes, 0, _factor(arguments, sizes[1]))
        return
    tensor = build.values.tensor(arguments.x)
    if arguments.axes == PIXELS and tensor.layout.order == "channels_last" and _is_image(shape):
        sizes = (shape[0], shape[2] * shape[3], shape[1])
    elif (found := _neighbours(tensor, arguments.axes)) is not None:
        sizes = found
    elif not _adjacent(arguments.axes):
        tensor = axes_last(build, tensor, arguments.axes)
        count = math.prod(shape[axis] for axis in arguments.axes)
        sizes = (math.prod(shape) // count, count, 1)
    else:
        tensor = build.values.rows(arguments.x)
        sizes = _around(shape, arguments.axes)
    add_up(build, tensor, sizes, 0, _factor(arguments, sizes[1]))


def _neighbours(tensor: Tensor, axes: Shape) -> tuple[int, int, int] | None:
    """Elements before, along and after the axes where they are neighbours in memory and all others
    are in the order of the shape, as the result's are."""
    if not axes or not fills_memory(tensor.layout, tensor.shape):
        return None
    strides = tensor.layout.strides(tensor.shape)
    long = [axis for axis, size in enumerate(tensor.shape) if size > 1]
    order = sorted(long, key=lambda axis: -strides[axis])
    kept = [axis for axis in order if axis not in axes]
    places = [place for place, axis in enumerate(order) if axis in axes]
    if kept != sorted(kept) or not places or not _adjacent(tuple(places)):
        return None
    return _around(tuple(tensor.shape[axis] for axis in order), tuple(places))


def _factor(arguments: Reduce, count: int) -> float:
    return 1 / count if arguments.function == "mean" else 1.0


def _as_rows_lie(build: Builder, x: Ref) -> tuple[Tensor, int] | None:
    """The rows of the last axis as they are stored, and the elements from one to the next: one
    after the other in any order, or with gaps that keep them aligned. None for others."""
    view, width = build.values.folded(x), build.current.value(x).shape[-1:]
    if not width or not is_aligned(view.tensor):
        return None
    if rows_in_memory(view) == width[0]:
        return view.tensor, width[0]
    if view.strides is None:
        return None
    tensor = build.values.view(x)
    pitch = pitch_in(tensor.layout, tensor.shape) if tensor.layout.order == "strided" else None
    return (tensor, pitch) if pitch and pitch == pitch_of(width[0], tensor.dtype) else None


def _folded(build: Builder, arguments: Reduce) -> None:
    """Products, extremes, and sums of integers: a block for each of them."""
    shape = build.current.value(arguments.x).shape
    tensor = axes_last(build, build.values.tensor(arguments.x), arguments.axes)
    length = math.prod(shape[axis] for axis in arguments.axes)
    floating = build.current.output().dtype == "float32"
    result = build.values.result(
        0, Layout(tensor.dtype if floating else build.current.output().dtype)
    )
    lines = math.prod(shape) // length
    kernel = fold(tensor.dtype, result.dtype, lines, length, arguments.function)
    build.steps.kernel(kernel, [tensor], [result])
    build.values.define(0, result)


def _adjacent(axes: Shape) -> bool:
    return not axes or axes == tuple(range(axes[0], axes[-1] + 1))


def _around(shape: Shape, axes: Shape) -> tuple[int, int, int]:
    """Elements before, along and after adjacent axes."""
    first, last = (axes[0], axes[-1] + 1) if axes else (0, 0)
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])


def _is_image(shape: Shape) -> bool:
    return len(shape) == 4


def _refuse(arguments: Reduce, question: Question) -> str:
    shape, axes = question.value(arguments.x).shape, arguments.axes
    if arguments.function not in ("sum", "mean"):
        return ""
    if question.value(arguments.x).dtype != "float32":
        return not_floating(question, arguments.x) if arguments.function == "mean" else ""
    if _is_image(shape) and axes in (PIXELS, ALL_BUT_CHANNELS):
        outer = shape[0] if axes == PIXELS else 1
        return beyond_kernel(question, lambda: reduction("float32", "float32", outer, 1, shape[1]))
    if not _adjacent(axes):
        count = math.prod(n for axis, n in enumerate(shape) if axis not in axes)
        return beyond_kernel(question, lambda: reduction("float32", "float32", count, 1, 1))
    sizes = _around(shape, axes)
    return beyond_kernel(question, lambda: reduction("float32", "float32", *sizes))


IMPLEMENTATIONS = (Implementation(Reduce, reduce, _refuse),)
