"""Linear layers. A transposed matrix is a view, so nothing is copied for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.cublaslt import Problem
from golow.levels.vendor.cudnn.elementwise import activated
from golow.levels.vendor.cudnn.formulas import clip_of
from golow.levels.vendor.cudnn.kernels.blocks import NO_CLIP, RELU
from golow.levels.vendor.cudnn.layouts import TENSOR_ALIGNMENT, Layout
from golow.levels.vendor.cudnn.refusing import without_formula
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.linear import Linear

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def linear(build: Builder, arguments: Linear) -> None:
    """Add one product with bias, residual and relu; leading dimensions of x count as rows."""
    shape, layout = build.output().shape, Layout(build.types.computed)
    outputs, features = build.value(arguments.weight).shape
    clip = clip_of(arguments.activation)
    problem = Problem(
        m=math.prod(shape[:-1]),
        n=outputs,
        k=features,
        dtype=layout.dtype,
        result=layout.dtype,
        arithmetic=build.types.products,
        transpose_b=True,
        bias=arguments.bias is not None,
        residual=arguments.residual is not None,
        relu=clip == RELU,
        alignment=TENSOR_ALIGNMENT,
    )
    operands = (arguments.x, arguments.weight, arguments.bias, arguments.residual)
    reads = [build.wanted(operand, layout) for operand in operands if operand is not None]
    result = build.new(build.output().name, shape, layout)
    build.engine(build.engine_for(problem), reads, [result])
    if clip not in (NO_CLIP, RELU):
        activated(build, [result], result, arguments.activation)
    build.define(0, result)


def _refuse(arguments: Linear, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or without_formula(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(Linear, linear, _refuse),)
