"""Attention over a cache by golow's kernel, in float32 arithmetic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.refusing import beyond_kernel
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.problems.products import Placed
from golow.levels.direct.cudnn.shared_kernels import cached_attention as kernels
from golow.levels.direct.cudnn.steps import sums
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.implementation import Implementation, Question
from golow.lower.ir.graph import Ref
from golow.lower.operators.cached_attention import CachedAttention

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


def cached_attention(build: Builder, arguments: CachedAttention) -> None:
    """The result has each row's heads side by side, as the next layer joins them. Only the rows of
    the caches that exist are read."""
    query = _with_rows(build, arguments.query)
    key, value = (_with_rows(build, item) for item in (arguments.key, arguments.value))
    images, heads, rows, width = (*query.shape[:3], value.shape[3])
    shape = (images, heads, rows, width)
    layout = layout_of(query.dtype, shape, (rows * heads * width, width, heads * width, 1))
    output = build.memory.new(build.current.output_name(), shape, layout)
    places = [_placed(tensor) for tensor in (query, key, value, output)]
    launched = kernels.cached_attention(
        places, (query.dtype, key.dtype), _scale(arguments, query.shape[3]), arguments.window
    )
    position = build.values.rows(arguments.position)
    sums.launch(build, launched, [query, key, value, position], [output])
    build.values.define(0, output)


def _with_rows(build: Builder, reference: Ref) -> Tensor:
    """The value as it is stored, if a head's rows are contiguous, else a copy."""
    tensor = build.values.view(reference)
    if is_aligned(tensor) and tensor.layout.strides(tensor.shape)[-1] == 1:
        return tensor
    return build.values.wanted(reference, Layout(tensor.dtype))


def _placed(tensor: Tensor) -> Placed:
    return Placed(tuple(tensor.shape), tuple(tensor.layout.strides(tensor.shape)))


def _scale(arguments: CachedAttention, width: int) -> float:
    return 1 / math.sqrt(width) if arguments.scale is None else arguments.scale


def _refuse(arguments: CachedAttention, question: Question) -> str:
    if math.prod(question.value(arguments.position).shape) > 1:
        return "golow.cached_attention at a position for each text"
    shapes = [question.value(a).shape for a in (arguments.query, arguments.key, arguments.value)]
    shapes.append((*shapes[0][:3], shapes[2][3]))
    places = [Placed(shape, Layout("float32").strides(shape)) for shape in shapes]
    return beyond_kernel(
        question, lambda: kernels.cached_attention(places, ("float32", "float32"), 1.0)
    )


IMPLEMENTATIONS = (Implementation(CachedAttention, cached_attention, _refuse),)
