"""Products of matrices or batches of matrices; a matrix may be a transposed view."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.vendor.cudnn.cublaslt import CONTIGUOUS, Problem, Strides
from golow.levels.vendor.cudnn.layouts import TENSOR_ALIGNMENT, Layout, pitch_in, pitch_of
from golow.levels.vendor.cudnn.long_rows import Product, divided, rows_for
from golow.levels.vendor.cudnn.steps import Tensor, is_aligned
from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.graph import Ref
from golow.lower.operators.cross_entropy import CrossEntropy, CrossEntropyBackward
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.operators.matrix_product import MatrixProduct

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

TAKE_GAPS = (FusedSoftmax, CrossEntropy, CrossEntropyBackward)


def product(build: Builder, arguments: MatrixProduct) -> None:
    """factor a b. Rows may have gaps between them; scores have some where only softmax or a loss
    reads them, and their softmax and gradient, since the libraries load and store 16 bytes at a
    time."""
    a, b = _matrix(build, arguments.a), _matrix(build, arguments.b)
    *batch, m, n = build.output().shape
    dtype = build.types.computed
    result = rows_for(build, dtype, *TAKE_GAPS)
    problem = Problem(
        m=m,
        n=n,
        k=a.tensor.shape[-1],
        dtype=dtype,
        result=dtype,
        arithmetic=build.types.products,
        transpose_a=a.turned,
        transpose_b=b.turned,
        factor=arguments.factor,
        batch=math.prod(batch),
        alignment=TENSOR_ALIGNMENT,
        a=a.strides,
        b=b.strides,
        d=_strides(result, turned=False) or CONTIGUOUS,
    )
    for part in divided(Product(problem, [a.tensor, b.tensor], result)):
        build.engine(build.engine_for(part.problem), part.reads, [part.result])
    build.define(0, result)


class _Matrix(NamedTuple):
    """A matrix, whether its columns are adjacent in memory instead of its rows' elements, and the
    gaps of what is stored."""

    tensor: Tensor
    turned: bool
    strides: Strides


def _matrix(build: Builder, reference: Ref) -> _Matrix:
    """Return a matrix in the type of products, as it lies if it can be read so."""
    tensor, dtype = build.view(reference), build.types.computed
    if tensor.dtype == dtype and is_aligned(tensor):
        for turned in (False, True):
            strides = _strides(tensor, turned)
            if strides is not None:
                return _Matrix(tensor, turned, strides)
    tensor = build.tensor(reference)
    order = tensor.layout.order if tensor.layout.order != "channels_last" else "rows"
    tensor = build.wanted(reference, Layout(dtype, order))
    return _Matrix(tensor, order == "transposed", CONTIGUOUS)


def _strides(tensor: Tensor, turned: bool) -> Strides | None:
    """The gaps of a matrix whose rows, or columns if it is turned, lie as far from one another
    throughout; None for another one, and for gaps after which rows are not aligned."""
    shape, steps = tensor.shape, tensor.layout.strides(tensor.shape)
    if turned:
        shape, steps = ((*order[:-2], order[-1], order[-2]) for order in (shape, steps))
    pitch = pitch_in(Layout(tensor.dtype, "strided", steps=steps), shape)
    if pitch is None or pitch == shape[-1]:
        return None if pitch is None else CONTIGUOUS
    aligned = pitch == pitch_of(pitch, tensor.dtype)
    return Strides(pitch, shape[-2] * pitch) if aligned else None


IMPLEMENTATIONS = (Implementation(MatrixProduct, product, refuse_integers),)
