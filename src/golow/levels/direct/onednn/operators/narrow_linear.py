"""A linear layer of a few rows whose weight is 8 or 4 bits wide: a kernel of golow's own; without a
compiler an inner product by the float32 numbers, which are made once."""

from __future__ import annotations

import math

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
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.refusing import without_algorithm
from golow.levels.direct.onednn.kernels.narrow_product import narrow_product
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.eltwise import post_ops
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.narrow_linear import NarrowLinear


def narrow_linear(build: Builder, arguments: NarrowLinear) -> None:
    """activation(x (weight * scale)^T + bias + residual); leading dimensions of x count as rows."""
    output = build.current.output()
    result = build.memory.new(output.name, output.shape, Descriptor.plain(output.shape))
    activation = arguments.activation
    known = activation is None or activation.name in formulas()
    (_by_kernel if build.generates and known else _by_library)(build, arguments, result)
    build.values.define(0, result)


def _by_kernel(build: Builder, arguments: NarrowLinear, result: Tensor) -> None:
    given = (arguments.x, arguments.weight, arguments.scale, arguments.bias, arguments.residual)
    reads = [build.values.plain(reference) for reference in given if reference is not None]
    kernel = narrow_product(
        math.prod(result.shape[:-1]),
        build.current.value(arguments.weight).shape,
        biased=arguments.bias is not None,
        residual=arguments.residual is not None,
        activation=arguments.activation,
    )
    build.steps.kernel(kernel, reads, [result])


def _by_library(build: Builder, arguments: NarrowLinear, result: Tensor) -> None:
    shape = build.current.value(arguments.x).shape
    inner, columns, rows = shape[-1], result.shape[-1], math.prod(shape[:-1])
    weight, line = Descriptor.plain((columns, inner)), Descriptor.plain((columns,))
    source, target = Descriptor.plain((rows, inner)), Descriptor.plain((rows, columns))
    wide = build.memory.new(f"{build.current.name}_wide", (columns, inner), weight)
    narrow = [build.values.plain(item) for item in (arguments.weight, arguments.scale)]
    build.steps.array_call(_widened, narrow, [wide])
    added = [] if arguments.residual is None else [PostOp("add", descriptor=target)]
    primitive = Primitive(
        build.engine, "inner_product_forward", FORWARD_INFERENCE, source, weight,
        line if arguments.bias is not None else None, target,
        post_ops=[*added, *post_ops(arguments.activation)],
    )  # fmt: skip
    reads = {SRC: build.values.plain(arguments.x)._replace(descriptor=source), WEIGHTS: wide}
    if arguments.bias is not None:
        reads[BIAS] = build.values.wanted(arguments.bias, line)
    if arguments.residual is not None:
        residual = build.values.plain(arguments.residual)
        reads[POST_OP_STRIDE | SRC_1] = residual._replace(descriptor=target)
    build.steps.call(primitive, reads, {DST: result._replace(descriptor=target)})


def _widened(weight: np.ndarray, scale: np.ndarray, wide: np.ndarray) -> None:
    """The float32 numbers [K, C] of a narrow weight."""
    numbers = weight
    if weight.dtype == np.uint8:
        numbers = np.concatenate([weight & 15, weight >> 4], axis=2).astype(np.int8) - 8
    wide[...] = (numbers.astype(np.float32) * scale).reshape(wide.shape)


def _refuse(arguments: NarrowLinear, question: Question) -> str:
    floats = not_floating(
        question, arguments.x, arguments.scale, arguments.bias, arguments.residual
    )
    return floats or without_algorithm(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(NarrowLinear, narrow_linear, _refuse),)
