"""Vectors divided by their length, by a kernel of golow's own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import floats, integers
from golow.levels.direct.cudnn.shared_kernels.geometry import require_positive
from golow.levels.direct.cudnn.shared_kernels.rows import (
    GROUPED_THREADS,
    ROWS,
    group_for,
    threads_for,
)
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import View, merged_axes
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.unit_norm import UnitNorm

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


class Lines(NamedTuple):
    """Rows [..., columns]: the sizes of three axes before the last one, and steps in elements."""

    sizes: tuple[int, int, int]
    steps: tuple[int, int, int]
    columns: int


class Factors(NamedTuple):
    """Factors that repeat cyclically. rows: consecutive rows that one factor applies to. factors:
    their number."""

    rows: int = 1
    factors: int = 1


def unit_norm(build: Builder, arguments: UnitNorm) -> None:
    """Rows are read where they are stored, if they are contiguous."""
    x, shape = build.values.view(arguments.x), build.current.output().shape
    result = build.values.result(0, Layout(build.types.computed))
    lines = _lines(x, result)
    if lines is None:
        x = build.values.rows(arguments.x)
        lines = _lines(x, result)
    assert lines is not None  # noqa: S101 - PyTorch's order is one axis
    factor, factors = _factors(build, arguments.factor, shape)
    kernel = unit_norm_kernel(x.dtype, result.dtype, lines, factors, arguments.epsilon)
    build.steps.kernel(kernel, [x, factor], [result])
    build.values.define(0, result)


def _lines(x: Tensor, result: Tensor) -> Lines | None:
    """How the rows of x are stored; None if they are not contiguous, or no vectors of them are
    aligned."""
    *outer, last = x.layout.strides(x.shape)
    columns = x.shape[-1]
    shape = x.shape[:-1]
    in_order = View("", Layout("").strides(shape))
    axes = merged_axes(shape, [in_order, View(x.dtype, tuple(outer))], 0)
    group = group_for(columns, x.dtype, result.dtype)
    width = 1 if group is None else group.width
    steps = axes.strides[1]
    if len(steps) > 3 or (last != 1 and columns > 1) or not is_aligned(x):
        return None
    if any(step % width for step in steps):
        return None
    sizes, steps = (1, 1, 1, *axes.sizes)[-3:], (0, 0, 0, *steps)[-3:]
    return Lines(sizes, steps, columns)  # type: ignore[arg-type]


def _factors(
    build: Builder, reference: Ref | None, shape: tuple[int, ...]
) -> tuple[Tensor | None, Factors]:
    if reference is None:
        return None, Factors()
    own = build.current.value(reference).shape
    axis = next((axis for axis, size in enumerate(own) if size > 1), len(own) - 1)
    each = math.prod(shape[axis + 1 : -1])
    return build.values.wanted(reference, Layout("float32")), Factors(each, own[axis])


def unit_norm_kernel(
    source: str, dtype: str, lines: Lines, factors: Factors, epsilon: float
) -> Kernel:
    """Pointers: x, factors (float32) or absent -> y, in PyTorch's order."""
    rows, columns = math.prod(lines.sizes), lines.columns
    require_positive(rows=rows, columns=columns)
    types = f"{C_TYPES[source]}, {C_TYPES[dtype]}"
    scalars = (
        *integers(rows, columns, *lines.sizes[1:]),
        *map(np.int64, lines.steps),
        *integers(*factors),
        *floats(epsilon),
    )
    group = group_for(columns, source, dtype)
    if group is not None:
        name, grid = f"unit_norm_held<{types}, {group}>", (group.blocks(rows), 1, 1)
        return Kernel(FILE, name, grid, (GROUPED_THREADS, 1, 1), scalars, code=ROWS)
    threads = threads_for(columns)
    return Kernel(
        FILE, f"unit_norm<{types}, {threads}>", (rows, 1, 1), (threads, 1, 1), scalars, code=ROWS
    )


IMPLEMENTATIONS = (Implementation(UnitNorm, unit_norm, refuse_integers),)
