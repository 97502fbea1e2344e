"""softmax, log softmax and their gradients, in float32 for any precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import require_floating, require_positive
from golow.levels.direct.cudnn.shared_kernels.rows import (
    GROUPED_THREADS,
    ROWS,
    group_for,
    threads_for,
)
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.strided_copies import (
    axis_last,
    copy,
    new_rows,
    turned_back,
    whole,
)
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.refusing import refuse_integers
from golow.lower.fuse.softmax_prologue import only_products_read
from golow.lower.ir.graph import Ref
from golow.lower.operators.softmax import Softmax, SoftmaxBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def softmax(build: Builder, arguments: Softmax) -> None:
    """Over an axis whose elements are contiguous in memory; another one is moved to the end, and
    its result seen back in its place. Stored in float32 unless only products read it."""
    shape, axis = build.current.value(arguments.x).shape, arguments.axis
    name = build.current.output().name
    dtype = build.types.computed if only_products_read(build.current.links, name) else "float32"
    if not _is_contiguous(shape, axis):
        x = axis_last(build, build.values.view(arguments.x), axis)
        rows, columns = math.prod(shape) // shape[axis], shape[axis]
        turned = build.memory.new(name, x.shape, Layout(dtype))
        kernel = forward_kernel(x.dtype, rows, columns, arguments.log, dtype)
        build.steps.kernel(kernel, [x], [turned])
        build.values.define(0, _seen_back(turned, axis))
        return
    x, rows, columns = _lines(build, arguments.x, arguments.axis)
    result = build.memory.new(name, x.shape, x.layout._replace(dtype=dtype))
    kernel = forward_kernel(x.dtype, rows, columns, arguments.log, dtype)
    build.steps.kernel(kernel, [x], [result])
    build.values.define(0, result)


def softmax_backward(build: Builder, arguments: SoftmaxBackward) -> None:
    """The gradient of the argument, in the type of activations; both operands in their own."""
    shape, axis = build.current.value(arguments.result).shape, arguments.axis
    rows, columns, dtype = math.prod(shape) // shape[axis], shape[axis], build.types.computed
    contiguous, given = _is_contiguous(shape, axis), (arguments.gradient, arguments.result)
    if contiguous:
        outer, y = (_lines(build, item, axis)[0] for item in given)
    else:
        outer, y = (axis_last(build, build.values.view(item), axis) for item in given)
    name = build.current.output().name if contiguous else f"{build.current.name}.gradient"
    made = build.memory.new(name, y.shape, y.layout._replace(dtype=dtype))
    types = (outer.dtype, y.dtype, dtype)
    build.steps.kernel(backward_kernel(types, rows, columns, arguments.log), [outer, y], [made])
    if contiguous:
        build.values.define(0, made)
    elif build.training.is_gradient(build.current.output().name):
        _turn_back(build, made, axis)
    else:
        build.values.define(0, _seen_back(made, axis))


def _lines(build: Builder, reference: Ref, axis: int) -> tuple[Tensor, int, int]:
    """Return the tensor with the axis innermost in memory, the number of lines and their length."""
    shape, dtype = build.current.value(reference).shape, build.values.tensor(reference).dtype
    layout = Layout(dtype)
    if _is_of_channels(shape, axis):
        layout = Layout(dtype, "channels_last", shape[1])
    return build.values.wanted(reference, layout), math.prod(shape) // shape[axis], shape[axis]


def _turn_back(build: Builder, turned: Tensor, axis: int) -> None:
    result = new_rows(build, turned.dtype)
    copy(build, turned, turned_back(turned, axis), result, whole(result), result.shape, "turn")
    build.values.define(0, result)


def _seen_back(turned: Tensor, axis: int) -> Tensor:
    """A view of a result with its last axis at its place."""
    shape = list(turned.shape)
    shape.insert(axis, shape.pop())
    layout = layout_of(turned.dtype, shape, turned_back(turned, axis).strides)
    return turned._replace(shape=tuple(shape), layout=layout)


def _is_contiguous(shape: tuple[int, ...], axis: int) -> bool:
    return _is_of_channels(shape, axis) or axis == len(shape) - 1


def _is_of_channels(shape: tuple[int, ...], axis: int) -> bool:
    return len(shape) == 4 and axis == 1


# ---------------------------------------------------------------- kernels


def forward_kernel(
    source: str, rows: int, columns: int, logarithm: bool, result: str = "float32"
) -> Kernel:
    """Pointers: x [rows, columns] of ``source`` -> y of ``result``; ``logarithm``: log softmax."""
    group, types = group_for(columns, source), (source, result)
    if group is None:
        return _of_rows("softmax", types, rows, columns, logarithm)
    _require(types, rows, columns)
    arguments = ", ".join((*(C_TYPES[dtype] for dtype in types), str(group)))
    expression = f"softmax_held<{arguments}, {str(logarithm).lower()}>"
    grid, block = (group.blocks(rows), 1, 1), (GROUPED_THREADS, 1, 1)
    return Kernel(FILE, expression, grid, block, (np.int32(rows), np.int32(columns)), code=ROWS)


def backward_kernel(
    types: tuple[str, str, str], rows: int, columns: int, logarithm: bool
) -> Kernel:
    """Pointers: gradient and result [rows, columns] -> dx. types: of all three, in this order."""
    group = group_for(columns, *types)
    if group is None:
        return _of_rows("softmax_backward", types, rows, columns, logarithm)
    _require(types, rows, columns)
    arguments = ", ".join((*(C_TYPES[dtype] for dtype in types), str(group)))
    expression = f"softmax_backward_held<{arguments}, {str(logarithm).lower()}>"
    grid, block = (group.blocks(rows), 1, 1), (GROUPED_THREADS, 1, 1)
    return Kernel(FILE, expression, grid, block, (np.int32(rows), np.int32(columns)), code=ROWS)


def _of_rows(name: str, types: Sequence[str], rows: int, columns: int, logarithm: bool) -> Kernel:
    _require(types, rows, columns)
    threads = threads_for(columns)
    arguments = ", ".join(C_TYPES[dtype] for dtype in types)
    expression = f"{name}<{arguments}, {threads}, {str(logarithm).lower()}>"
    scalars = (np.int32(columns),)
    return Kernel(FILE, expression, (rows, 1, 1), (threads, 1, 1), scalars, code=ROWS)


def _require(types: Sequence[str], rows: int, columns: int) -> None:
    for dtype in types:
        require_floating(dtype=dtype)
    require_positive(rows=rows, columns=columns)


IMPLEMENTATIONS = (
    Implementation(Softmax, softmax, refuse_integers),
    Implementation(SoftmaxBackward, softmax_backward, refuse_integers),
)
