"""Linear layers as convolutions of images of one pixel, and convolutions of one tap as products of
the pixels: engines for the one compute the other, too."""

from __future__ import annotations

from golow.levels.direct.cudnn.problems.epilogue import GELU
from golow.levels.direct.cudnn.problems.gemm import CONTIGUOUS, Problem
from golow.levels.direct.cudnn.problems.layouts import TENSOR_ALIGNMENT
from golow.levels.direct.cudnn.problems.products import Convolution
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, RELU
from golow.lower.ir.graph import Activation


def as_product(operation: Convolution) -> Problem | None:
    """Return a pointwise convolution as a matrix product over the pixels; None if it cannot be
    written as one."""
    follows = operation.clip not in (NO_CLIP, RELU) or operation.activation is not None
    if follows or operation.direction != "forward" or not operation.pointwise:
        return None
    images, outputs, rows, columns = operation.output
    return Problem(
        m=images * rows * columns,
        n=outputs,
        k=operation.image[1],
        dtype=operation.dtype,
        result=operation.result,
        arithmetic=operation.arithmetic,
        transpose_b=True,
        bias=operation.bias,
        residual=operation.residual,
        relu=operation.clip == RELU,
        alignment=TENSOR_ALIGNMENT,
        frozen=operation.frozen,
        cold=operation.cold,
    )


def as_convolution(problem: Problem, activation: Activation | None = None) -> Convolution | None:
    """Return the product of one matrix with a weight stored [n, k] as a convolution; None for any
    other. Operands are in the same order."""
    strides = (problem.a, problem.b, problem.d, problem.c)
    if any(matrix != CONTIGUOUS for matrix in strides) or problem.transpose_a:
        return None
    if problem.batch > 1 or problem.factor != 1.0 or problem.bias_gradient:
        return None
    if not problem.transpose_b or problem.arithmetic == "quarter":
        return None
    return Convolution(
        direction="forward",
        image=(problem.m, problem.k, 1, 1),
        output=(problem.m, problem.n, 1, 1),
        kernel=(1, 1),
        stride=(1, 1),
        padding=(0, 0, 0, 0),
        dilation=(1, 1),
        groups=1,
        dtype=problem.dtype,
        result=problem.result,
        arithmetic=problem.arithmetic,
        bias=problem.bias,
        residual=problem.residual,
        clip=RELU if problem.relu else NO_CLIP,
        activation=GELU if problem.gelu else activation,
        frozen=problem.frozen,
        cold=problem.cold,
    )
