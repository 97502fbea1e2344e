"""Products of groups of rows by a kernel of golow's own: each row meets the matrix of its group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import CODE, ceiling
from golow.levels.direct.cudnn.shared_kernels.few_pixels import TENSOR_CORES
from golow.levels.direct.cudnn.shared_kernels.geometry import require_floating, require_positive
from golow.levels.direct.cudnn.steps.strided_copies import axis_last, new_rows
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.grouped_product import GroupedProduct

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
ROWS, COLUMNS, THREADS = 64, 128, 256  # of a block, as in the kernel
STEP = 8
"""Width and outputs are multiples of it, which the pass sees to: whole pieces of 16 bytes, and
eight outputs a product."""


def grouped_product(build: Builder, arguments: GroupedProduct) -> None:
    """The weights of a group have the width side by side; others are turned once."""
    layout = Layout(build.types.computed)
    x = build.values.wanted(arguments.x, layout)
    weight = build.values.wanted(arguments.weight, layout)
    if not arguments.turned:
        weight = axis_last(build, weight, 1)
    ends = build.values.wanted(arguments.ends, Layout("int32"))
    result = new_rows(build, layout.dtype)
    kernel = kernel_of(layout.dtype, *x.shape[:1], *weight.shape)
    build.steps.kernel(kernel, [x, weight, ends], [result])
    build.values.define(0, result)


def kernel_of(dtype: str, rows: int, groups: int, outputs: int, inner: int) -> Kernel:
    """Pointers: x [rows, inner], w [groups, outputs, inner], ends (int32) [groups] -> y [rows,
    outputs]; with tf32 or 16-bit products and float32 sums. Raises ValueError for what the kernel
    does not support."""
    require_floating(dtype=dtype)
    require_positive(rows=rows, groups=groups)
    if min(outputs, inner) < STEP or outputs % STEP or inner % STEP:
        raise ValueError(f"{outputs} outputs of width {inner}: not multiples of {STEP}")
    # Each group may end within a tile, and so may the rows of none.
    tiles = rows // ROWS + groups + 1
    return Kernel(
        FILE,
        f"grouped_product<{C_TYPES[dtype]}>",
        (tiles, ceiling(outputs, COLUMNS), 1),
        (THREADS, 1, 1),
        tuple(map(np.int32, (rows, groups, outputs, inner))),
        code=CODE + TENSOR_CORES,
    )


IMPLEMENTATIONS = (Implementation(GroupedProduct, grouped_product),)
