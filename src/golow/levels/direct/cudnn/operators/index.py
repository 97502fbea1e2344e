"""Elements by several index tensors, and writing to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels.elements import Lookup, elements
from golow.levels.direct.cudnn.steps.strided_copies import copy, look_up, new_rows, repeated, whole
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import Ref
from golow.lower.operators.index import Index, IndexPut

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder
    from golow.levels.direct.cudnn.steps.built_plan import Tensor

INTEGERS = ("int64", "int32", "uint8", "bool")


def index(build: Builder, arguments: Index) -> None:
    """A copy of the elements."""
    x = build.values.rows(arguments.x)
    result = new_rows(build, x.dtype)
    tensors, views, lookups, table = _places(build, arguments.indices, x, result.shape)
    places = list(zip(tensors, views, strict=True))
    look_up(build, places, (x, table), lookups, (result, whole(result)), result.shape)
    build.values.define(0, result)


def index_put(build: Builder, arguments: IndexPut) -> None:
    """A copy of x; then each value is written, or added atomically."""
    dtype = build.current.output().dtype
    x, values = build.values.wanted(arguments.x, Layout(dtype)), build.values.rows(arguments.values)
    result = build.values.result(0, Layout(dtype))
    copy(build, x, whole(x), result, whole(result), x.shape)
    shape = _shape_of_places(build, arguments.indices, x)
    tensors, views, lookups, target = _places(build, arguments.indices, result, shape)
    value = repeated(values, shape)
    formula = "abcdefgh"[len(views)]
    kind = "int64" if dtype in INTEGERS else "mixed"
    kernel = elements(formula, [*views, value], target, shape, kind, lookups, arguments.add)
    build.steps.kernel(kernel, [*tensors, values], [result])
    build.values.define(0, result)


def _shape_of_places(build: Builder, indices: tuple[Ref | None, ...], x: Tensor) -> tuple[int, ...]:
    """The shape of x[indices]: NumPy's rule for index tensors beside one another, or apart."""
    import numpy as np

    axes = [axis for axis, item in enumerate(indices) if item is not None]
    shapes = [build.current.value(item).shape for item in indices if item is not None]
    together = tuple(np.broadcast_shapes(*shapes))
    others = [n for axis, n in enumerate(x.shape) if axis not in axes]
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    return (*others[:first], *together, *others[first:])


def _places(
    build: Builder, indices: tuple[Ref | None, ...], x: Tensor, shape: tuple[int, ...]
) -> tuple[list[Tensor], list[View], list[Lookup], View]:
    """The index tensors, how the result's indices see them, how they move the place in x, and x
    where none of them moves it."""
    axes = [axis for axis, item in enumerate(indices) if item is not None]
    tensors = [build.values.rows(item) for item in indices if item is not None]
    rank = max(len(tensor.shape) for tensor in tensors)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    strides = x.layout.strides(x.shape)
    others = [stride for axis, stride in enumerate(strides) if axis not in axes]
    after = len(shape) - first - rank
    together = shape[first : first + rank]
    views = [
        View(t.dtype, (*[0] * first, *repeated(t, together).strides, *[0] * after)) for t in tensors
    ]
    lookups = [Lookup(k, x.shape[axis], strides[axis]) for k, axis in enumerate(axes)]
    return tensors, views, lookups, View(x.dtype, (*others[:first], *[0] * rank, *others[first:]))


def _refuse(arguments: Index | IndexPut, question: Question) -> str:
    if sum(item is not None for item in arguments.indices) > 6:
        return f"{question.node.op} with more than 6 indices"
    if isinstance(arguments, IndexPut) and arguments.add:
        dtype = question.value(arguments.x).dtype
        return "" if dtype == "float32" else f"{question.node.op} that adds to {dtype}"
    return ""


IMPLEMENTATIONS = (
    Implementation(Index, index, _refuse),
    Implementation(IndexPut, index_put, _refuse),
)
