"""RMS norm and its gradients, by golow's own kernels."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES, OF_8_BITS
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.columns import Sums, tiling
from golow.levels.direct.cudnn.shared_kernels.geometry import require_positive
from golow.levels.direct.cudnn.shared_kernels.rows import ROWS, blocks_of_sums, by_rows, summed_rows
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.sums import add_up, launch
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.rms_norm import RmsNorm, RmsNormBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def rms_norm(build: Builder, arguments: RmsNorm) -> None:
    """Result and sum are in the type of activations, the roots are float32."""
    x, rows, columns = _rows(build, arguments.x, arguments.axes)
    residual = None if arguments.residual is None else build.values.rows(arguments.residual)
    weight = _exact(build, arguments.weight)
    scale, computed = _exact(build, arguments.result_scale), build.types.computed
    types = (computed, "float32", computed, arguments.result_type or computed)
    made = [
        build.values.result(index, Layout(dtype)) if build.current.is_read(index) else None
        for index, dtype in enumerate(types[: arguments.results])
    ]
    read = (x.dtype, (residual or x).dtype, computed)
    kernel = forward_kernel(read, rows, columns, arguments.epsilon, types[3])
    written = [*made, *[None] * (4 - len(made))]
    build.steps.kernel(kernel, [x, residual, weight, scale], written)
    for index, tensor in enumerate(made):
        if tensor is not None:
            build.values.define(index, tensor)


def rms_norm_backward(build: Builder, arguments: RmsNormBackward) -> None:
    """The gradient of the weight is summed in a fixed order: the parts that the blocks of s's
    gradient leave, or all rows once more."""
    x, rows, columns = _rows(build, arguments.x, arguments.axes)
    outer = build.values.rows(arguments.gradient)
    deviation, weight = (_exact(build, item) for item in (arguments.deviation, arguments.weight))
    added = None if arguments.added is None else build.values.rows(arguments.added)
    blocks, partial = 0, None
    if build.current.is_read(0):
        inner = build.values.result(0, Layout(build.types.computed))
        types = (outer.dtype, x.dtype, (added or x).dtype, inner.dtype)
        blocks = blocks_of_sums(rows, columns, *types) if build.current.is_read(1) else 0
        partial = build.memory.scratch(blocks * columns) if blocks else None
        kernel = backward_kernel(types, rows, columns, blocks)
        written = [inner, *([partial] if partial else [])]
        build.steps.kernel(kernel, [outer, x, deviation, weight, added], written)
        build.values.define(0, inner)
    if partial is not None:
        add_up(build, partial, (1, blocks, columns), 1)
    elif build.current.is_read(1):
        result = build.values.result(1, Layout("float32"))
        found = weights_kernel(outer.dtype, x.dtype, rows, columns)
        launch(build, found, [outer, x, deviation], [result])
        build.values.define(1, result)


def _rows(build: Builder, reference: Ref, axes: int) -> tuple[Tensor, int, int]:
    x = build.values.rows(reference)
    first = len(x.shape) - axes
    return x, math.prod(x.shape[:first]), math.prod(x.shape[first:])


def _exact(build: Builder, reference: Ref | None) -> Tensor | None:
    return None if reference is None else build.values.wanted(reference, Layout("float32"))


# ---------------------------------------------------------------- kernels


def forward_kernel(
    types: tuple[str, str, str],
    rows: int,
    columns: int,
    epsilon: float,
    rounded: str = "float32",
) -> Kernel:
    """Pointers: x, residual [rows, columns] or absent, weight (float32 [columns] or absent), a
    scale or absent -> y, roots (float32 [rows]), the sum, y times the scale in the type
    ``rounded``; what is absent is not wanted. types: of x, the residual and y."""
    return by_rows(FILE, "rms_norm", types, rows, columns, (np.float32(epsilon),), (rounded,))


def backward_kernel(
    types: tuple[str, str, str, str], rows: int, columns: int, blocks: int = 0
) -> Kernel:
    """Pointers: gradient, s [rows, columns], roots, weight or absent, what is added or absent ->
    ds and, if blocks is not 0, sums of the weight's gradient (float32 [blocks, columns]). types: of
    gradient, s, what is added, and ds."""
    if blocks:
        return summed_rows(FILE, "rms_norm_backward", types, rows, columns, blocks)
    return by_rows(FILE, "rms_norm_backward", types, rows, columns)


def weights_kernel(gradient: str, source: str, rows: int, columns: int) -> Sums:
    """Pointers: gradient, s, roots -> the weight's gradient (float32 [columns])."""
    require_positive(rows=rows, columns=columns)
    tiles = tiling(1, rows, columns, gradient, source)
    types = f"{C_TYPES[gradient]}, {C_TYPES[source]}, {tiles.width}, {tiles.threads}"
    scalars = (np.int32(rows), np.int32(columns), np.int32(tiles.tiles))
    return tiles.sums(FILE, f"rms_norm_weights<{types}>", scalars, code=ROWS)


IMPLEMENTATIONS = (
    Implementation(RmsNorm, rms_norm, refuse_integers, OF_8_BITS),
    Implementation(RmsNormBackward, rms_norm_backward, refuse_integers),
)
