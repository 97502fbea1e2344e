"""softmax of functions of elements as one generated kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.operators.fused_pointwise import inputs_of, names_of, statement
from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import pitch_in
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.elements import VALUES
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import (
    WIDE,
    Statement,
    access_of,
    as_index,
    compute_of,
    definitions_of,
    indices_of,
    input_name,
    macro,
    numbers_of,
    reach,
    read_of,
)
from golow.levels.direct.cudnn.shared_kernels.rows import GROUPED_THREADS, ROWS, group_for
from golow.levels.direct.cudnn.steps.long_rows import rows_for
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import Axes, View, merged_axes
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.operators.matrix_product import MatrixProduct

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def fused_softmax(build: Builder, arguments: FusedSoftmax) -> None:
    """Computed in float32, and stored so unless only products read it."""
    output, parts = build.current.output(), list(arguments.parts)
    seen, views, values = inputs_of(build, arguments.inputs, parts, output.shape)
    statements = [statement(index, part, values) for index, part in enumerate(parts)]
    dtype = build.types.computed if arguments.rounded else "float32"
    result = rows_for(build, dtype, MatrixProduct)
    pitch = pitch_in(result.layout, output.shape)
    assert pitch is not None  # noqa: S101 - rows, with gaps or without
    kernel = kernel_of(statements, views, result.dtype, output.shape, pitch, arguments.log)
    build.steps.kernel(kernel, seen, [result], names=tuple(names_of(arguments.inputs, parts)))
    build.values.define(0, result)


def kernel_of(
    statements: Sequence[Statement],
    inputs: Sequence[View],
    dtype: str,
    shape: Sequence[int],
    pitch: int,
    log: bool,
) -> Kernel:
    """Pointers: the inputs, seen at the indices of ``shape`` -> the result, rows of ``dtype`` with
    ``pitch`` elements from one to the next.

    Statements as in `kernels.fused.fused`; softmax over the last axis is taken of the last one.
    Raises ValueError for rows that are too long for a warp's registers.
    """
    rows, columns = math.prod(shape[:-1]), shape[-1]
    group = group_for(columns, dtype)
    if group is None:
        raise ValueError(f"rows of {columns} elements are too long")
    axes = _axes(shape, inputs)
    names = [input_name(index) for index in range(len(inputs))]
    accesses = [
        access_of(view, steps, axes, group.width)
        for view, steps in zip(inputs, axes.strides, strict=True)
    ]
    index = np.uint32 if reach(inputs, axes) < WIDE else np.uint64
    sizes = list(numbers_of(names, inputs, axes))
    last = len(axes.sizes) - 1
    read = [f"const Index i_{last} = column;", *read_of(names, inputs, accesses, axes, len(names))]
    lines = (
        *definitions_of(statements, names, inputs, sizes, index, group.width),
        macro("OUTER", indices_of(axes, "row", within=1)),
        macro("READ", read),
        macro("COMPUTE", compute_of(statements, names, accesses, (), axes)),
    )
    scalars = (
        index(rows),
        np.int32(columns),
        np.int32(pitch),
        *(as_index(index, number) for _, number in sizes),
    )
    parameters = (C_TYPES[dtype], group.lanes, group.items, str(log).lower())
    expression = f"fused_softmax<{', '.join(map(str, parameters))}>"
    code = ROWS + VALUES + "\n".join(lines) + "\n\n"
    grid, block = (group.blocks(rows), 1, 1), (GROUPED_THREADS, 1, 1)
    return Kernel(FILE, expression, grid, block, scalars, 0, code)


def _axes(shape: Sequence[int], inputs: Sequence[View]) -> Axes:
    """The fewest axes for the rows, in the result's order, and then that of the columns."""
    steps = tuple(math.prod(shape[axis + 1 : -1]) for axis in range(len(shape) - 1))
    views = [view._replace(strides=view.strides[:-1]) for view in inputs]
    outer = merged_axes(shape[:-1], [View("", steps), *views], 0)
    strides = (
        (*each, view.strides[-1]) for each, view in zip(outer.strides[1:], inputs, strict=True)
    )
    return Axes((*outer.sizes, shape[-1]), tuple(strides))


IMPLEMENTATIONS = (Implementation(FusedSoftmax, fused_softmax),)
