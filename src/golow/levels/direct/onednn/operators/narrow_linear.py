"""A linear layer whose weight is bf16, or 8 or 4 bits wide.

For a few rows a kernel of golow's own reads it. Otherwise the library multiplies: a weight in bf16
by rows that are rounded to bf16, where the processor can; any other by rows as they are, after it
has become float32, once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from golow.levels.direct.formulas.activation_formulas import formulas
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    BIAS,
    DST,
    FORWARD_INFERENCE,
    POST_OP_STRIDE,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, has_bf16
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.refusing import without_algorithm
from golow.levels.direct.onednn.kernels.narrow_product import narrow_product
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.eltwise import post_ops
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.narrow_linear import NarrowLinear
from golow.lower.recognise.narrow_layers import MOST_ROWS

BF16 = "bfloat16"


def narrow_linear(build: Builder, arguments: NarrowLinear) -> None:
    """activation(x (weight * scale)^T + bias + residual); leading dimensions of x count as rows."""
    output = build.current.output()
    result = build.memory.new(output.name, output.shape, Descriptor.plain(output.shape))
    activation = arguments.activation
    known = activation is None or activation.name in formulas()
    few = math.prod(output.shape[:-1]) <= MOST_ROWS
    (_by_kernel if few and build.generates and known else _by_library)(build, arguments, result)
    build.values.define(0, result)


def _by_kernel(build: Builder, arguments: NarrowLinear, result: Tensor) -> None:
    given = (arguments.x, arguments.weight, arguments.scale, arguments.bias, arguments.residual)
    reads = [build.values.plain(reference) for reference in given if reference is not None]
    weight = build.current.value(arguments.weight)
    kernel = narrow_product(
        math.prod(result.shape[:-1]),
        weight.shape,
        weight.dtype,
        biased=arguments.bias is not None,
        residual=arguments.residual is not None,
        activation=arguments.activation,
    )
    build.steps.kernel(kernel, reads, [result])


class Factors(NamedTuple):
    """Rows [rows, C] and weight [K, C] of a product, both float32 or both bf16."""

    rows: Tensor
    weight: Tensor


def _by_library(build: Builder, arguments: NarrowLinear, result: Tensor) -> None:
    inner, columns = build.current.value(arguments.x).shape[-1], result.shape[-1]
    rows = math.prod(result.shape[:-1])
    line, target = Descriptor.plain((columns,)), Descriptor.plain((rows, columns))
    x = build.values.plain(arguments.x)._replace(descriptor=Descriptor.plain((rows, inner)))
    halves = build.current.value(arguments.weight).dtype == BF16 and has_bf16()
    factors = (_halves if halves else _widened)(build, arguments, x)
    added = [] if arguments.residual is None else [PostOp("add", descriptor=target)]
    primitive = Primitive(
        build.engine, "inner_product_forward", FORWARD_INFERENCE,
        *(factor.layout for factor in factors),
        line if arguments.bias is not None else None, target,
        post_ops=[*added, *post_ops(arguments.activation)],
    )  # fmt: skip
    reads = {SRC: factors.rows, WEIGHTS: factors.weight}
    if arguments.bias is not None:
        reads[BIAS] = build.values.wanted(arguments.bias, line)
    if arguments.residual is not None:
        residual = build.values.plain(arguments.residual)
        reads[POST_OP_STRIDE | SRC_1] = residual._replace(descriptor=target)
    build.steps.call(primitive, reads, {DST: result._replace(descriptor=target)})


def _halves(build: Builder, arguments: NarrowLinear, x: Tensor) -> Factors:
    """The weight as it is, and rows that are rounded to it."""
    shape = x.layout.shape
    layout = Descriptor.plain(shape, BF16)
    rounded = build.memory.new(f"{build.current.name}_rounded", shape, layout, BF16)
    primitive = Primitive(build.engine, "reorder", x.layout, layout)
    build.steps.call(primitive, {SRC: x}, {DST: rounded}, "round")
    return Factors(rounded, build.values.plain(arguments.weight))


def _widened(build: Builder, arguments: NarrowLinear, x: Tensor) -> Factors:
    """Rows as they are, and the weight in float32."""
    columns, inner = build.current.output().shape[-1], x.layout.shape[1]
    given = [item for item in (arguments.weight, arguments.scale) if item is not None]
    layout = Descriptor.plain((columns, inner))
    wide = build.memory.new(f"{build.current.name}_wide", (columns, inner), layout)
    build.steps.array_call(_wide_numbers, list(map(build.values.plain, given)), [wide])
    return Factors(x, wide)


def _wide_numbers(weight: np.ndarray, *rest: np.ndarray) -> None:
    """Write the float32 numbers [K, C] of a narrow weight into the last array."""
    *scale, wide = rest
    numbers = weight
    if weight.dtype == np.uint8:
        numbers = np.concatenate([weight & 15, weight >> 4], axis=2).astype(np.int8) - 8
    exact = numbers.astype(np.float32)
    wide[...] = (exact * scale[0] if scale else exact).reshape(wide.shape)


def _refuse(arguments: NarrowLinear, question: Question) -> str:
    floats = not_floating(
        question, arguments.x, arguments.scale, arguments.bias, arguments.residual
    )
    return floats or without_algorithm(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(NarrowLinear, narrow_linear, _refuse, frozenset({BF16})),)
