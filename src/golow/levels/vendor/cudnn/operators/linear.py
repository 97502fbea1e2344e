"""Linear layers and matrix products. A transposed matrix is a view; nothing is moved for it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.cublaslt import Problem
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.operators.elementwise import activated
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Argument, Node, Ref

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engine

ALIGNMENT = 64  # bytes, of every tensor in the plan, halves of what the plan aligns included


def linear(build: Builder, node: Node) -> None:
    """activation(x weight^T + bias + residual); leading dimensions of x count as rows."""
    x, weight, bias, residual, activation = node.arguments
    shape, dtype = build.output().shape, build.types.computed
    outputs, features = build.value(weight).shape
    relu = activation == ("relu",)
    problem = Problem(
        m=math.prod(shape[:-1]),
        n=outputs,
        k=features,
        dtype=dtype,
        result=dtype,
        arithmetic=build.types.products,
        transpose_b=True,
        bias=isinstance(bias, Ref),
        residual=isinstance(residual, Ref),
        relu=relu,
        alignment=ALIGNMENT,
    )
    reads = [build.wanted(x, Layout(dtype)), build.wanted(weight, Layout(dtype))]
    reads += [build.wanted(bias, Layout(dtype))] if problem.bias else []
    reads += [build.wanted(residual, Layout(dtype))] if problem.residual else []
    result = build.new(build.output().name, shape, Layout(dtype))
    build.engine(_engine(build, problem), reads, [result])
    if activation and not relu:
        activated(build, [result], result, activation)
    build.define(0, result)


def product(build: Builder, node: Node) -> None:
    """a b, for matrices or batches of them; a matrix may be a transposed view."""
    a, b = (_matrix(build, argument) for argument in node.arguments[:2])
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
        batch=math.prod(batch),
        alignment=ALIGNMENT,
    )
    result = build.result(0, Layout(dtype))
    build.engine(_engine(build, problem), [a, b], [result])
    build.define(0, result)


def _matrix(build: Builder, argument: Argument) -> Tensor:
    """In the type of products, row-major or transposed."""
    tensor, dtype = build.tensor(argument), build.types.computed
    order = tensor.layout.order if tensor.layout.order != "channels_last" else "rows"
    return build.wanted(argument, Layout(dtype, order))


def _engine(build: Builder, problem: Problem) -> Engine:
    engine = build.engines.choose(problem)
    if engine is None:
        raise build.unsupported(f"cuBLASLt has no kernel for {build.node.op} of these shapes")
    return engine


OPERATORS: dict[str, Operator] = {
    "golow.linear": linear,
    "aten.mm.default": product,
    "aten.bmm.default": product,
}
