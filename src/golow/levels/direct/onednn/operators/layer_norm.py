"""Layer norm by oneDNN's primitives. They keep the variance; the graph has 1 / sqrt(variance +
epsilon), one number per row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.formulas.literals import number as literal
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    BACKWARD,
    DIFF_DST,
    DIFF_SCALE,
    DIFF_SHIFT,
    DIFF_SRC,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    MEAN,
    SCALE,
    SHIFT,
    SRC,
    USE_SCALE,
    USE_SHIFT,
    VARIANCE,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, number
from golow.levels.direct.onednn.bindings.primitive import Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.elements import input_name, of_each
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.layer_norm import LayerNorm, LayerNormBackward


def layer_norm(build: Builder, arguments: LayerNorm) -> None:
    """Rows in memory: the normalised axes are one, all others another."""
    rows, columns = _sizes(build, arguments.x, arguments.axes)
    x, flat, of_rows = build.values.plain(arguments.x), *_layouts(rows, columns)
    keeps = build.current.is_read(1) or build.current.is_read(2)
    kind = FORWARD_TRAINING if keeps else FORWARD_INFERENCE
    flags, reads = _scales(build, arguments.weight, arguments.bias, columns)
    primitive = _forward(build, kind, flat, of_rows, arguments.epsilon, flags)
    y = build.memory.new(build.current.output_name(0), x.shape, Descriptor.plain(x.shape))
    writes = {DST: y._replace(descriptor=flat)}
    if keeps:
        mean = build.memory.new(build.current.output_name(1), (rows,), of_rows)
        variance = build.memory.new(f"{build.current.name}.variance", (rows,), of_rows)
        writes |= {MEAN: mean, VARIANCE: variance}
    build.steps.call(primitive, {SRC: x._replace(descriptor=flat), **reads}, writes)
    build.values.define(0, y)
    if not keeps:
        return
    epsilon = np.float32(arguments.epsilon)

    def invert(variance: Any, deviation: Any) -> None:
        np.divide(1, np.sqrt(variance + epsilon), out=deviation)

    deviation = build.memory.new(build.current.output_name(2), (rows,), of_rows)
    if build.generates:
        inverse = f"1.0f / sqrtf({input_name(0)} + {literal(arguments.epsilon)})"
        build.steps.kernel(of_each(inverse, "float32", rows), [variance], [deviation])
    else:
        build.steps.array_call(invert, [variance], [deviation])
    for index, tensor in ((1, mean), (2, deviation)):
        if build.current.is_read(index):
            shape = build.current.output(index).shape
            build.values.define(index, tensor._replace(descriptor=Descriptor.plain(shape)))


def layer_norm_backward(build: Builder, arguments: LayerNormBackward) -> None:
    """The variance comes back from its root, with an epsilon of zero."""
    rows, columns = _sizes(build, arguments.x, arguments.axes)
    flat, of_rows = _layouts(rows, columns)
    x = build.values.plain(arguments.x)._replace(descriptor=flat)
    outer = build.values.plain(arguments.gradient)._replace(descriptor=flat)
    mean = build.values.plain(arguments.mean)._replace(descriptor=of_rows, shape=(rows,))
    deviation = build.values.plain(arguments.deviation)._replace(descriptor=of_rows, shape=(rows,))
    variance = build.memory.new(f"{build.current.name}.variance", (rows,), of_rows)

    def square(deviation: Any, variance: Any) -> None:
        np.divide(1, deviation * deviation, out=variance)

    if build.generates:
        inverse = f"1.0f / ({input_name(0)} * {input_name(0)})"
        build.steps.kernel(of_each(inverse, "float32", rows), [deviation], [variance])
    else:
        build.steps.array_call(square, [deviation], [variance])
    # The shift is an argument of the gradient too, although it does not matter.
    flags, reads = _scales(build, arguments.weight, arguments.bias, columns)
    reads |= {SRC: x, DIFF_DST: outer, MEAN: mean, VARIANCE: variance}
    forward = _forward(build, FORWARD_TRAINING, flat, of_rows, 0.0, flags)
    primitive = Primitive(
        build.engine, "layer_normalization_backward", BACKWARD, flat, flat, flat, of_rows,
        number(0.0), flags, forward.description,
    )  # fmt: skip
    inner = build.memory.new(build.current.output_name(0), x.shape, flat)
    writes = {DIFF_SRC: inner}
    line = Descriptor.plain((columns,))
    if flags & USE_SCALE:
        writes[DIFF_SCALE] = build.memory.new(build.current.output_name(1), (columns,), line)
    if flags & USE_SHIFT:
        writes[DIFF_SHIFT] = build.memory.new(build.current.output_name(2), (columns,), line)
    build.steps.call(primitive, reads, writes)
    for index, argument in enumerate((DIFF_SRC, DIFF_SCALE, DIFF_SHIFT)):
        if build.current.is_read(index):
            shape = build.current.output(index).shape
            made = writes[argument]._replace(descriptor=Descriptor.plain(shape))
            build.values.define(index, made)


def _forward(
    build: Builder, kind: int, flat: Descriptor, of_rows: Descriptor, epsilon: float, flags: int
) -> Primitive:
    return Primitive(
        build.engine, "layer_normalization_forward", kind, flat, flat, of_rows, number(epsilon),
        flags,
    )  # fmt: skip


def _sizes(build: Builder, reference: Ref, axes: int) -> tuple[int, int]:
    shape = build.current.value(reference).shape
    first = len(shape) - axes
    return math.prod(shape[:first]), math.prod(shape[first:])


def _layouts(rows: int, columns: int) -> tuple[Descriptor, Descriptor]:
    return Descriptor.plain((rows, columns)), Descriptor.plain((rows,))


def _scales(
    build: Builder, weight: Ref | None, bias: Ref | None, columns: int
) -> tuple[int, dict[int, Tensor]]:
    """The flags of scale and shift, and the tensors."""
    flags, reads, line = 0, {}, Descriptor.plain((columns,))
    if weight is not None:
        flags |= USE_SCALE
        reads[SCALE] = build.values.plain(weight)._replace(descriptor=line)
    if bias is not None:
        flags |= USE_SHIFT
        reads[SHIFT] = build.values.plain(bias)._replace(descriptor=line)
    return flags, reads


def _refuse(arguments: LayerNormBackward, question: Question) -> str:
    added = "" if arguments.added is None else "a norm's gradient adds nothing here"
    return added or refuse_integers(arguments, question)


IMPLEMENTATIONS = (
    Implementation(LayerNorm, layer_norm, refuse_integers),
    Implementation(LayerNormBackward, layer_norm_backward, _refuse),
)
