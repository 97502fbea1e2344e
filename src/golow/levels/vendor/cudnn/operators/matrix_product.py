"""Products of matrices or batches of matrices; a matrix may be a transposed view."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.vendor.cudnn.cublaslt import CONTIGUOUS, Problem, Strides
from golow.levels.vendor.cudnn.folding import Folded, of_rows
from golow.levels.vendor.cudnn.layouts import TENSOR_ALIGNMENT, Layout, pitch_in, pitch_of
from golow.levels.vendor.cudnn.steps import Tensor, is_aligned
from golow.levels.vendor.folding import Part, joined, rows_in_memory
from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.graph import Ref
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.operators.matrix_product import MatrixProduct

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


class Operands(NamedTuple):
    """Both matrices; rows: how the graph sees the rows of ``a``, where that is not how they lie."""

    a: Tensor
    b: Tensor
    rows: Folded | None = None


def product(build: Builder, arguments: MatrixProduct) -> None:
    """factor a b. Rows may have gaps between them; scores have some where softmax alone reads them,
    and its result, since the libraries load and store 16 bytes at a time."""
    a, b, rows = _as_they_lie(build, arguments) or Operands(
        _matrix(build, arguments.a), _matrix(build, arguments.b)
    )
    shape, dtype = build.output().shape, build.types.computed
    *batch, m, n = shape
    problem = Problem(
        m=m,
        n=n,
        k=a.shape[-1],
        dtype=dtype,
        result=dtype,
        arithmetic=build.types.products,
        transpose_a=a.layout.order == "transposed",
        transpose_b=b.layout.order == "transposed",
        factor=arguments.factor,
        batch=math.prod(batch),
        alignment=TENSOR_ALIGNMENT,
    )
    result = build.rows_for(FusedSoftmax, dtype)
    problem = replace(
        problem,
        a=_strides(a),
        b=_strides(b),
        d=_strides(result),
    )
    build.engine(build.engine_for(problem), [a, b], [result])
    if rows is None:
        build.define(0, result)
    else:
        whole = result._replace(shape=(m, problem.d.row or n))
        build.fold(of_rows(rows, whole, a.shape[-1], n))


def _as_they_lie(build: Builder, arguments: MatrixProduct) -> Operands | None:
    """Two matrices whose rows lie in another order than the graph's; None for any others. The order
    of the rows over which a^T b is summed does not matter if both have the same; the rows of a
    result are in the order of those of ``a``."""
    if len(build.value(arguments.a).shape) != 2:
        return None
    a, b = build.folded(arguments.a), build.folded(arguments.b)
    turned, layout = a.permuted((1, 0)), Layout(build.types.computed)
    if _is_reordered(turned, layout) and _is_reordered(b, layout) and _order(turned) == _order(b):
        first = a.tensor._replace(shape=_shape(a), layout=layout._replace(order="transposed"))
        return Operands(first, b.tensor._replace(shape=_shape(b), layout=layout))
    if _is_reordered(a, layout) and not build.is_gradient(build.output().name):
        first = a.tensor._replace(shape=_shape(a), layout=layout)
        return Operands(first, _matrix(build, arguments.b), a)
    return None


def _is_reordered(matrix: Folded, layout: Layout) -> bool:
    """Whether a view has its rows side by side, but not in its own order."""
    fits = matrix.tensor.dtype == layout.dtype and is_aligned(matrix.tensor)
    return fits and matrix.strides is None and rows_in_memory(matrix) == _shape(matrix)[1]


def _order(matrix: Folded) -> list[Part]:
    """The parts of a matrix's rows, with steps in rows."""
    width = _shape(matrix)[1]
    return [Part(part.size, part.step // width) for part in joined(matrix.axes[0])]


def _shape(matrix: Folded) -> tuple[int, ...]:
    return tuple(math.prod(part.size for part in axis) for axis in matrix.axes)


def _matrix(build: Builder, reference: Ref) -> Tensor:
    """Return a matrix in the type of products, row-major or transposed."""
    tensor, dtype = build.view(reference), build.types.computed
    if tensor.dtype == dtype and is_aligned(tensor) and _pitch(tensor) is not None:
        return tensor
    tensor = build.tensor(reference)
    order = tensor.layout.order if tensor.layout.order != "channels_last" else "rows"
    return build.wanted(reference, Layout(dtype, order))


def _pitch(tensor: Tensor) -> int | None:
    """Elements between the rows of a matrix with gaps that keep them aligned; None for others."""
    pitch = pitch_in(tensor.layout, tensor.shape)
    return pitch if pitch and pitch == pitch_of(pitch, tensor.dtype) else None


def _strides(matrix: Tensor) -> Strides:
    """The gaps of a matrix, if it has any."""
    pitch = _pitch(matrix) if matrix.layout.order == "strided" else None
    return CONTIGUOUS if pitch is None else Strides(pitch, matrix.shape[-2] * pitch)


IMPLEMENTATIONS = (Implementation(MatrixProduct, product, refuse_integers),)
