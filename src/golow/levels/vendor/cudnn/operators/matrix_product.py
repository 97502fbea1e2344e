"""Products of matrices or batches of matrices; a matrix may be a transposed view."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.cublaslt import Problem
from golow.levels.vendor.cudnn.layouts import TENSOR_ALIGNMENT, Layout
from golow.levels.vendor.cudnn.steps import Tensor
from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.graph import Ref
from golow.lower.operators.matrix_product import MatrixProduct

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def product(build: Builder, arguments: MatrixProduct) -> None:
    """factor a b."""
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
    result = build.result(0, Layout(dtype))
    build.engine(build.engine_for(problem), [a, b], [result])
    build.define(0, result)


def _matrix(build: Builder, reference: Ref) -> Tensor:
    """Return a matrix in the type of products, row-major or transposed."""
    tensor, dtype = build.tensor(reference), build.types.computed
    order = tensor.layout.order if tensor.layout.order != "channels_last" else "rows"
    return build.wanted(reference, Layout(dtype, order))


IMPLEMENTATIONS = (Implementation(MatrixProduct, product, refuse_integers),)
