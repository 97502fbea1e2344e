"""Products of matrices or batches of matrices; a matrix may be a transposed view."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.cublaslt import CONTIGUOUS, Problem, Strides
from golow.levels.vendor.cudnn.layouts import TENSOR_ALIGNMENT, Layout, pitch_in, pitch_of
from golow.levels.vendor.cudnn.steps import Tensor, is_aligned
from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.graph import Ref
from golow.lower.operators.fused_softmax import FusedSoftmax
from golow.lower.operators.matrix_product import MatrixProduct

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def product(build: Builder, arguments: MatrixProduct) -> None:
    """factor a b. Rows may have gaps between them; scores have some where softmax alone reads them,
    and its result, since the libraries load and store 16 bytes at a time."""
    a, b = _matrix(build, arguments.a), _matrix(build, arguments.b)
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
    build.define(0, result)


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
