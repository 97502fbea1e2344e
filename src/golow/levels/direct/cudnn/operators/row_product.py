"""Linear layers of a few rows by golow's own kernel, which reads the weight once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.build.refusing import beyond_kernel, without_formula
from golow.levels.direct.cudnn.problems.element_types import C_TYPES, ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import (
    ceiling,
    floats,
    integers,
    power_of_two,
)
from golow.levels.direct.cudnn.shared_kernels.few_pixels import TENSOR_CORES
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    VECTOR,
    require_floating,
    require_positive,
)
from golow.levels.direct.formulas.activation_formulas import with_activation
from golow.levels.direct.implementation import Implementation, Question
from golow.lower.ir.graph import Activation
from golow.lower.operators.row_product import RowProduct

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
WARPS, LANES = 16, 32  # of a block, of a warp
DEPTH, PIECE = 2, 16  # groups of pieces that are on their way; bytes of one
LOADS = 8  # pieces of a lane for a unit
MANY = 64  # rows of the weight for each block, from which on half as many pieces are faster
SHORT = 2  # pieces of a row for a lane: the fewer, the less of x a warp holds
MOST_PIECES = 8
MOST = 4  # rows of x: they and their sums are in registers
BLOCKS = 132  # one on each multiprocessor: the next kernel's blocks fit beside them


class Shape(NamedTuple):
    """rows of x; outputs: columns of the result; inner: of the weight. normed, gated: as in
    `RowProduct`."""

    rows: int
    outputs: int
    inner: int
    normed: bool = False
    gated: bool = False


class Tiling(NamedTuple):
    """together: outputs that warps have at once; pieces: of a row for each lane; shares: warps that
    have a row."""

    together: int
    pieces: int
    shares: int

    @property
    def outputs(self) -> int:
        """Outputs that a block has at once."""
        return WARPS // self.shares * self.together


def row_product(build: Builder, arguments: RowProduct) -> None:
    """Everything is in the type of activations, the norm's weights are float32."""
    like = Layout(build.types.computed)
    given = (arguments.x, arguments.weight, arguments.norm, arguments.bias, arguments.residual)
    layouts = (like, like, Layout("float32"), like, like)
    reads = [
        None if item is None else build.values.wanted(item, layout)
        for item, layout in zip(given, layouts, strict=True)
    ]
    result = build.values.result(0, like)
    shape = _shape(
        arguments, build.current.output().shape, build.current.value(arguments.weight).shape
    )
    kernel = kernel_of(like.dtype, shape, arguments.epsilon or 0.0, arguments.activation)
    build.steps.kernel(kernel, reads, [result])
    build.values.define(0, result)


def _shape(arguments: RowProduct, made: tuple[int, ...], weight: tuple[int, ...]) -> Shape:
    normed = arguments.epsilon is not None
    return Shape(math.prod(made[:-1]), made[-1], weight[1], normed, arguments.gated)


def kernel_of(
    dtype: str, shape: Shape, epsilon: float = 0.0, activation: Activation | None = None
) -> Kernel:
    """Pointers: x [rows, inner], w [outputs or twice as many, inner], the norm's weights (float32
    [inner]) or absent, bias, residual or absent -> y [rows, outputs]. Sums are float32. Raises
    ValueError for what the kernel does not take."""
    require_floating(dtype=dtype)
    require_positive(**shape._asdict() | {"normed": 1, "gated": 1})
    vector = 16 // ITEM_BYTES[dtype]
    if shape.rows > MOST or shape.inner % vector:
        raise ValueError(f"{shape.rows} rows of {shape.inner} elements")
    tiles = tiling(shape, vector)
    if tiles.pieces > MOST_PIECES:
        raise ValueError(f"rows of {shape.inner} elements")
    flags = (str(flag).lower() for flag in (shape.normed, shape.gated))
    held = power_of_two(shape.rows)
    parameters = (held, *tiles, DEPTH, shape.inner, *flags)
    formula = with_activation("value", activation)
    return Kernel(
        FILE,
        f"row_product<{C_TYPES[dtype]}, {', '.join(map(str, parameters))}>",
        (min(BLOCKS, ceiling(shape.outputs, tiles.outputs)), 1, 1),
        (LANES * WARPS, 1, 1),
        (*integers(shape.rows, shape.outputs), *floats(epsilon)),
        shared=DEPTH * tiles.together * (2 if shape.gated else 1) * PIECE * LANES * WARPS,
        code=f"#define ACTIVATED(value) ({formula})\n{VECTOR}{TENSOR_CORES}",
    )


def tiling(shape: Shape, vector: int) -> Tiling:
    """How warps share the rows, so that a lane has few pieces of each."""
    steps = ceiling(shape.inner, vector * LANES)
    shares = min(WARPS, power_of_two(ceiling(steps, SHORT)))
    pieces = ceiling(steps, shares)
    many = shape.outputs * (2 if shape.gated else 1) >= MANY * BLOCKS
    rows = max(1, min(4, LOADS // pieces) // (2 if many else 1))
    return Tiling(max(1, rows // 2) if shape.gated else rows, pieces, shares)


def _refuse(arguments: RowProduct, question: Question) -> str:
    weight = question.value(arguments.weight).shape
    made = (*question.value(arguments.x).shape[:-1], weight[0] // (2 if arguments.gated else 1))
    beyond = beyond_kernel(question, lambda: kernel_of("float32", _shape(arguments, made, weight)))
    return beyond or without_formula(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(RowProduct, row_product, _refuse),)
