"""Convolution of whole numbers of 8 bits, with scales, bias, residual, activation and rounding
fused."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    BIAS,
    CHANNELS_LAST,
    CONVOLUTION_DIRECT,
    DST,
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
from golow.levels.direct.onednn.operators.convolution import (
    Make,
    geometry,
    weight_layout,
    with_residual,
)
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.eltwise import post_ops
from golow.levels.direct.onednn.steps.requantisation import with_rounding
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.quantized_convolution import QuantizedConvolution

BY_FILTER, BY_FILTER_OF_GROUP = 0b1, 0b11
"""Axes of a weight along which scales differ: [K, C, R, S], or [G, K / G, C, R, S]."""


def quantized_convolution(build: Builder, arguments: QuantizedConvolution) -> None:
    """activation(convolution(x, weight) * scale + bias + residual), in channels last; rounded if
    the next layer reads whole numbers."""
    require_vnni(build)
    x, bias = build.current.value(arguments.x), arguments.bias
    kernel, groups = build.current.value(arguments.weight).shape, arguments.groups
    vector = Descriptor.plain((kernel[0],))
    described = (
        Descriptor.tagged(x.shape, CHANNELS_LAST, x.dtype),
        weight_layout(kernel, groups, "int8"),
        vector if bias is not None else None,
    )

    def make(after: list[PostOp], target: Descriptor) -> Primitive:
        return Primitive(
            build.engine, "convolution_forward", build.forward_kind, CONVOLUTION_DIRECT, *described,
            target, *geometry(arguments), post_ops=after,
            scales={WEIGHTS: BY_FILTER if groups == 1 else BY_FILTER_OF_GROUP},
        )  # fmt: skip

    primitive, result, more = _with_epilogue(build, arguments, make)
    reads = {
        SRC: build.values.wanted(arguments.x, primitive.descriptor(SRC)),
        WEIGHTS: build.values.wanted(arguments.weight, primitive.descriptor(WEIGHTS)),
        SCALES | WEIGHTS: build.values.wanted(arguments.scale, vector),
    }
    if bias is not None:
        reads[BIAS] = build.values.wanted(bias, vector)
    inside = result if arguments.residual is not None and not more else None
    build.steps.call(primitive, reads | more, {DST: result}, adds_to=inside)
    build.values.define(0, result)


def _with_epilogue(
    build: Builder, arguments: QuantizedConvolution, make: Make
) -> tuple[Primitive, Tensor, dict[int, Tensor]]:
    """Return the primitive, its result and the arguments of its post-ops. It may add into the
    memory of a residual, if it does not round what it writes."""
    output, residual = build.current.output(), arguments.residual
    wide = Descriptor.tagged(output.shape, CHANNELS_LAST)
    after = post_ops(arguments.activation)
    if residual is not None and arguments.result_scale is None:
        return with_residual(build, residual, arguments.x, make, wide, after)
    reads: dict[int, Tensor] = {}
    if residual is not None:
        after = [PostOp("add", descriptor=wide), *after]
        reads = {POST_OP_STRIDE | SRC_1: build.values.wanted(residual, wide)}
    rounding = with_rounding(build, arguments.result_scale, after, len(output.shape))
    target = Descriptor.tagged(output.shape, CHANNELS_LAST, arguments.result_type)
    primitive = make(rounding.post_ops, target)
    result = build.memory.new(output.name, output.shape, target, output.dtype)
    return primitive, result, reads | rounding.reads


def _refuse(arguments: QuantizedConvolution, question: Question) -> str:
    floats = not_floating(
        question, arguments.scale, arguments.bias, arguments.residual, arguments.result_scale
    )
    return floats or without_algorithm(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(QuantizedConvolution, quantized_convolution, _refuse),)
