"""A linear layer of whole numbers of 8 bits, with scales, bias, residual, activation and rounding
fused: an inner product, whose weight is in blocks."""

from __future__ import annotations

import math

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    ANY,
    BIAS,
    DST,
    FORWARD_INFERENCE,
    POST_OP_STRIDE,
    SCALES,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.refusing import require_vnni, without_algorithm
from golow.levels.direct.onednn.steps.eltwise import post_ops
from golow.levels.direct.onednn.steps.requantisation import with_rounding
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.quantized_linear import QuantizedLinear

BY_OUTPUT = 0b1
"""The axis of a weight [K, C] along which scales differ."""


def quantized_linear(build: Builder, arguments: QuantizedLinear) -> None:
    """activation((x weight^T) * scale + bias + residual), rounded if the next layer reads whole
    numbers; leading dimensions of x count as rows."""
    require_vnni(build)
    output, x = build.current.output(), build.current.value(arguments.x)
    columns, inner = build.current.value(arguments.weight).shape
    rows, line = math.prod(output.shape[:-1]), Descriptor.plain((columns,))
    source = Descriptor.plain((rows, inner), x.dtype)
    target = Descriptor.plain((rows, columns), arguments.result_type)
    wide = Descriptor.plain((rows, columns))
    added = [] if arguments.residual is None else [PostOp("add", descriptor=wide)]
    after = [*added, *post_ops(arguments.activation)]
    rounding = with_rounding(build, arguments.result_scale, after, axes=2)
    primitive = Primitive(
        build.engine, "inner_product_forward", FORWARD_INFERENCE, source,
        Descriptor.tagged((columns, inner), ANY, "int8"),
        line if arguments.bias is not None else None, target,
        post_ops=rounding.post_ops, scales={WEIGHTS: BY_OUTPUT},
    )  # fmt: skip
    layout = Descriptor.plain(output.shape, output.dtype)
    result = build.memory.new(output.name, output.shape, layout, output.dtype)
    reads = {
        SRC: build.values.plain(arguments.x)._replace(descriptor=source),
        WEIGHTS: build.values.wanted(arguments.weight, primitive.descriptor(WEIGHTS)),
        SCALES | WEIGHTS: build.values.wanted(arguments.scale, line),
    }
    if arguments.bias is not None:
        reads[BIAS] = build.values.wanted(arguments.bias, line)
    if arguments.residual is not None:
        residual = build.values.plain(arguments.residual)
        reads[POST_OP_STRIDE | SRC_1] = residual._replace(descriptor=wide)
    build.steps.call(primitive, reads | rounding.reads, {DST: result._replace(descriptor=target)})
    build.values.define(0, result)


def _refuse(arguments: QuantizedLinear, question: Question) -> str:
    floats = not_floating(
        question, arguments.scale, arguments.bias, arguments.residual, arguments.result_scale
    )
    return floats or without_algorithm(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(QuantizedLinear, quantized_linear, _refuse),)
