"""Layer norm and its gradients, by golow's own kernels."""

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
from golow.levels.direct.cudnn.steps.sums import launch
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.layer_norm import LayerNorm, LayerNormBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")


def layer_norm(build: Builder, arguments: LayerNorm) -> None:
    """The result is in the type of activations, means and deviations are float32."""
    x, rows, columns = _rows(build, arguments.x, arguments.axes)
    weight, bias = (_exact(build, item) for item in (arguments.weight, arguments.bias))
    scale, computed = _exact(build, arguments.result_scale), build.types.computed
    types = (computed, "float32", "float32", arguments.result_type or computed)
    made = [
        build.values.result(index, Layout(dtype)) if build.current.is_read(index) else None
        for index, dtype in enumerate(types[: arguments.results])
    ]
    kernel = forward_kernel(x.dtype, computed, rows, columns, arguments.epsilon, types[3])
    build.steps.kernel(kernel, [x, weight, bias, scale], [*made, *[None] * (4 - len(made))])
    for index, tensor in enumerate(made):
        if tensor is not None:
            build.values.define(index, tensor._replace(shape=build.current.output(index).shape))


def layer_norm_backward(build: Builder, arguments: LayerNormBackward) -> None:
    """The gradients of weight and bias are summed in a fixed order: the parts that the blocks of
    x's gradient leave, or all rows once more."""
    x, rows, columns = _rows(build, arguments.x, arguments.axes)
    outer = build.values.rows(arguments.gradient)
    mean, deviation = (_exact(build, item) for item in (arguments.mean, arguments.deviation))
    weight = _exact(build, arguments.weight)
    added = None if arguments.added is None else build.values.rows(arguments.added)
    of_vectors = build.current.is_read(1) or build.current.is_read(2)
    reads, blocks, partial = [outer, x, mean, deviation], 0, None
    if build.current.is_read(0):
        inner = build.values.result(0, Layout(build.types.computed))
        types = (outer.dtype, x.dtype, (added or x).dtype, inner.dtype)
        blocks = blocks_of_sums(rows, columns, *types) if of_vectors else 0
        partial = build.memory.scratch(2 * blocks * columns) if blocks else None
        kernel = backward_kernel(types, rows, columns, blocks)
        written = [inner, *([partial] if partial else [])]
        build.steps.kernel(kernel, [*reads, weight, added], written)
        build.values.define(0, inner)
    if not of_vectors:
        return
    sums = [
        build.values.result(i, Layout("float32")) if build.current.is_read(i) else None
        for i in (1, 2)
    ]
    if partial is not None:
        launch(build, parts_kernel(blocks, columns), [partial], sums)
    else:
        launch(build, weights_kernel(outer.dtype, x.dtype, rows, columns), reads, sums)
    for index, result in enumerate(sums, 1):
        if result is not None:
            build.values.define(index, result)


def _rows(build: Builder, reference: Ref, axes: int) -> tuple[Tensor, int, int]:
    x = build.values.rows(reference)
    first = len(x.shape) - axes
    return x, math.prod(x.shape[:first]), math.prod(x.shape[first:])


def _exact(build: Builder, reference: Ref | None) -> Tensor | None:
    return None if reference is None else build.values.wanted(reference, Layout("float32"))


# ---------------------------------------------------------------- kernels


def forward_kernel(
    source: str, dtype: str, rows: int, columns: int, epsilon: float, rounded: str = "float32"
) -> Kernel:
    """Pointers: x [rows, columns], weight, bias (float32 [columns] or absent), a scale or absent ->
    y, means, deviations (float32 [rows]), y times the scale in the type ``rounded``; what is absent
    is not wanted."""
    further = (np.float32(epsilon),)
    return by_rows(FILE, "layer_norm", (source, dtype), rows, columns, further, (rounded,))


def backward_kernel(
    types: tuple[str, str, str, str], rows: int, columns: int, blocks: int = 0
) -> Kernel:
    """Pointers: gradient, x [rows, columns], means, deviations, weight or absent, what is added or
    absent -> dx and, if blocks is not 0, sums of weight's and bias's gradients (float32 [2, blocks,
    columns]). types: of gradient, x, what is added, and dx."""
    if blocks:
        return summed_rows(FILE, "layer_norm_backward", types, rows, columns, blocks)
    return by_rows(FILE, "layer_norm_backward", types, rows, columns)


def parts_kernel(blocks: int, columns: int) -> Sums:
    """Pointers: sums [2, blocks, columns] -> weight's and bias's gradients (float32 [columns]), of
    which one may be absent."""
    tiles = tiling(2, blocks, columns, "float32")
    name = f"layer_norm_parts<{tiles.width}, {tiles.threads}>"
    scalars = (np.int32(blocks), np.int32(columns), np.int32(tiles.tiles))
    return tiles.sums(FILE, name, scalars, outer=2, code=ROWS)


def weights_kernel(gradient: str, source: str, rows: int, columns: int) -> Sums:
    """Pointers: gradient, x, means, deviations -> weight's and bias's gradients (float32
    [columns]), of which one may be absent."""
    require_positive(rows=rows, columns=columns)
    tiles = tiling(1, rows, columns, gradient, source)
    types = f"{C_TYPES[gradient]}, {C_TYPES[source]}, {tiles.width}, {tiles.threads}"
    scalars = (np.int32(rows), np.int32(columns), np.int32(tiles.tiles))
    return tiles.sums(FILE, f"layer_norm_weights<{types}>", scalars, each=2, code=ROWS)


IMPLEMENTATIONS = (
    Implementation(LayerNorm, layer_norm, refuse_integers, OF_8_BITS),
    Implementation(LayerNormBackward, layer_norm_backward, refuse_integers),
)
