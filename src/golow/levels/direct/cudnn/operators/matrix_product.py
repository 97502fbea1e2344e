"""Products of matrices or batches of matrices; a matrix may be a transposed view."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.problems.gemm import CONTIGUOUS, Problem, Strides, strides_of
from golow.levels.direct.cudnn.problems.layouts import UNIT, Layout
from golow.levels.direct.cudnn.steps.built_plan import Tensor, alignment_of, is_aligned
from golow.levels.direct.cudnn.steps.long_rows import Product, in_parts, rows_for
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, of_rows
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.refusing import refuse_integers
from golow.levels.direct.split_axes import Part, joined, rows_in_memory
from golow.lower.ir.graph import Ref
from golow.lower.operators.cross_entropy import CrossEntropy, CrossEntropyBackward
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.operators.matrix_product import MatrixProduct

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

TAKE_GAPS = (FusedSoftmax, CrossEntropy, CrossEntropyBackward)


class Matrix(NamedTuple):
    """A matrix, whether its columns are adjacent in memory instead of its rows' elements, and the
    gaps of what is stored."""

    tensor: Tensor
    turned: bool
    strides: Strides


class Operands(NamedTuple):
    """Both matrices; rows: how the graph sees the rows of ``a``, where that is not how they are
    stored."""

    a: Matrix
    b: Matrix
    rows: Folded | None = None


def product(build: Builder, arguments: MatrixProduct) -> None:
    """factor a b + added. Rows may have gaps between them; scores have some where only softmax or a
    loss reads them, and their softmax and gradient, since the libraries load and store 16 bytes at
    a time."""
    a, b, rows = _as_they_lie(build, arguments) or Operands(
        _matrix(build, arguments.a), _matrix(build, arguments.b)
    )
    *batch, m, n = build.current.output().shape
    dtype = build.types.computed
    added = [] if arguments.added is None else [build.values.wanted(arguments.added, Layout(dtype))]
    result = (
        rows_for(build, dtype, *TAKE_GAPS) if not added else build.values.result(0, Layout(dtype))
    )
    problem = Problem(
        m=m,
        n=n,
        k=a.tensor.shape[-1],
        dtype=dtype,
        result=dtype,
        arithmetic=build.types.products,
        transpose_a=a.turned,
        transpose_b=b.turned,
        residual=bool(added),
        factor=arguments.factor,
        batch=math.prod(batch),
        alignment=alignment_of((a.tensor, b.tensor)),
        a=a.strides,
        b=b.strides,
        d=strides_of(result.layout, result.shape, turned=False) or CONTIGUOUS,
    )
    for part in in_parts(Product(problem, [a.tensor, b.tensor, *added], result)):
        build.steps.engine(build.engine_for(part.problem), part.reads, [part.result])
    if rows is None:
        build.values.define(0, result)
    else:
        whole = result._replace(shape=(m, problem.d.row or n))
        build.values.fold(of_rows(rows, whole, a.tensor.shape[-1], n))


def _as_they_lie(build: Builder, arguments: MatrixProduct) -> Operands | None:
    """Two matrices whose rows are in another order than the graph's; None for any others. The order
    of the rows over which a^T b is summed does not matter if both have the same; the rows of a
    result are in the order of those of ``a``."""
    if len(build.current.value(arguments.a).shape) != 2:
        return None
    a, b = build.values.folded(arguments.a), build.values.folded(arguments.b)
    turned, layout = a.permuted((1, 0)), Layout(build.types.computed)
    if _is_reordered(turned, layout) and _is_reordered(b, layout) and _order(turned) == _order(b):
        first = a.tensor._replace(shape=a.shape, layout=layout._replace(order="transposed"))
        second = b.tensor._replace(shape=b.shape, layout=layout)
        return Operands(Matrix(first, True, CONTIGUOUS), Matrix(second, False, CONTIGUOUS))
    if arguments.added is not None:  # its rows are in the graph's order
        return None
    if _is_reordered(a, layout) and not build.training.is_gradient(build.current.output().name):
        first = a.tensor._replace(shape=a.shape, layout=layout)
        return Operands(Matrix(first, False, CONTIGUOUS), _matrix(build, arguments.b), a)
    return None


def _is_reordered(matrix: Folded, layout: Layout) -> bool:
    """True if a view has its rows side by side, but not in its own order."""
    fits = matrix.tensor.dtype == layout.dtype and is_aligned(matrix.tensor)
    return fits and matrix.strides is None and rows_in_memory(matrix) == matrix.shape[1]


def _order(matrix: Folded) -> list[Part]:
    """The parts of a matrix's rows, with steps in rows."""
    width = matrix.shape[1]
    return [Part(part.size, part.step // width) for part in joined(matrix.axes[0])]


def _matrix(build: Builder, reference: Ref) -> Matrix:
    """Return a matrix in the type of products, as it is stored if it can be read so."""
    tensor, dtype = build.values.view(reference), build.types.computed
    if tensor.dtype == dtype and tensor.offset % UNIT == 0:
        for turned in (False, True):
            strides = strides_of(tensor.layout, tensor.shape, turned)
            if strides is not None:
                return Matrix(tensor, turned, strides)
    tensor = build.values.tensor(reference)
    order = tensor.layout.order if tensor.layout.order != "channels_last" else "rows"
    tensor = build.values.wanted(reference, Layout(dtype, order))
    return Matrix(tensor, order == "transposed", CONTIGUOUS)


IMPLEMENTATIONS = (Implementation(MatrixProduct, product, refuse_integers),)
