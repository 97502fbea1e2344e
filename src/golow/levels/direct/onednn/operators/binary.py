"""Arithmetic of two values, or of a value and a number, with an activation fused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    BINARY_ADD,
    BINARY_DIV,
    BINARY_MUL,
    BINARY_SUB,
    DST,
    SRC,
    SRC_1,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, channel_block
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.refusing import without_algorithm
from golow.levels.direct.onednn.kernels.elements import input_name, of_each
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.eltwise import apply, post_ops
from golow.levels.direct.onednn.steps.strided_views import dense
from golow.levels.direct.onednn.steps.value_views import ITEM_BYTES
from golow.levels.direct.refusing import refuse_integers
from golow.lower.ir.graph import Ref
from golow.lower.operators.binary import Binary, Function

ALGORITHMS: dict[Function, int] = {
    "add": BINARY_ADD,
    "subtract": BINARY_SUB,
    "multiply": BINARY_MUL,
    "divide": BINARY_DIV,
}
COMMUTES = ("add", "multiply")


def binary(build: Builder, arguments: Binary) -> None:
    """activation(a OP b); if b is a number, a linear function of a."""
    if isinstance(arguments.b, Ref):
        _of_two(build, arguments, arguments.b)
    elif build.current.output().dtype == "int64":
        _count(build, arguments.a, int(arguments.b))
    else:
        apply(build, arguments.a, _linear(arguments.function, float(arguments.b)), "binary")


def _of_two(build: Builder, arguments: Binary, b: Ref) -> None:
    """The first operand has the result's shape, and its layout becomes the result's layout."""
    shape, operands = build.current.output().shape, [arguments.a, b]
    if build.current.value(arguments.a).shape != shape:
        operands.reverse()
    first = build.values.tensor(operands[0])
    second = _beside(build, operands[1], first)

    def make(one: Descriptor, other: Descriptor) -> Primitive:
        return Primitive(
            build.engine, "binary", ALGORITHMS[arguments.function], one, other, one,
            post_ops=post_ops(arguments.activation),
        )  # fmt: skip

    layout = first.layout
    primitive = make(layout, second.layout)
    if primitive.implementation.startswith("ref") and second.shape != first.shape:
        second = _repeated(build, second, first)
        layout, other = _rows(layout), _rows(second.layout)
        second = second._replace(descriptor=other)
        primitive = make(layout, other)
    result = build.values.in_place_or_new(operands[0], first)
    reads = {SRC: first._replace(descriptor=layout), SRC_1: second}
    build.steps.call(primitive, reads, {DST: result._replace(descriptor=layout)})
    build.values.define(0, result)


def _rows(layout: Descriptor) -> Descriptor:
    """The view with the first axis alone, if it is the outermost in memory."""
    count = layout.shape[0]
    width = layout.bytes // ITEM_BYTES // count
    outermost = count == 1 or layout.strides[0] == width
    return Descriptor.plain((count, width)) if outermost else layout


def _beside(build: Builder, reference: Ref, other: Tensor) -> Tensor:
    """The second operand: in the first one's layout, or row-major with axes of size 1 added."""
    shape = build.current.value(reference).shape
    if shape == other.shape:
        return build.values.wanted(reference, other.layout)
    tensor = build.values.plain(reference)
    wide = (*[1] * (len(other.shape) - len(shape)), *shape)
    return tensor._replace(descriptor=Descriptor.plain(wide))


def _repeated(build: Builder, second: Tensor, first: Tensor) -> Tensor:
    """The second operand repeated along all axes but the first one, in the first operand's layout.
    The library has fast code for rows that are repeated, but only its reference code, a hundred
    times slower, where an axis in between is. What depends on weights alone is repeated once."""
    given = second.layout.shape
    shape = (given[0], *first.shape[1:])
    plain = build.memory.new(f"{build.current.name}.repeated", shape, Descriptor.plain(shape))
    source = second._replace(shape=given)

    def run(x: Any, y: Any) -> None:
        y[...] = x

    build.steps.array_call(run, [source], [plain])
    if first.layout.blocks:
        layout = Descriptor.tagged(shape, channel_block().tag)
    else:
        layout = dense(shape, first.layout.strides)
    return plain if layout == plain.layout else build.values.reordered(plain, layout)


def _count(build: Builder, reference: Ref, step: int) -> None:
    """Add a number to integer counters, such as batch norm's number of batches."""
    x = build.values.tensor(reference)

    def run(x: Any, y: Any) -> None:
        np.add(x, step, out=y)

    result = build.outputs.state_for(0) or build.memory.new(
        build.current.output_name(), x.shape, dtype="int64"
    )
    if build.generates:
        kernel = of_each(f"{input_name(0)} + {step}", "int64", math.prod(x.shape))
        build.steps.kernel(kernel, [x], [result])
    else:
        build.steps.array_call(run, [x], [result])
    build.values.define(0, result)


def _linear(function: Function, value: float) -> PostOp:
    if function in ("multiply", "divide"):
        return PostOp("linear", value if function == "multiply" else 1.0 / value, 0.0)
    return PostOp("linear", 1.0, value if function == "add" else -value)


def _refuse(arguments: Binary, question: Question) -> str:
    name, b = question.node.op, arguments.b
    if isinstance(b, Ref):
        shape = _result_shape(question, arguments.a, b)
        allowed = (arguments.a, b) if arguments.function in COMMUTES else (arguments.a,)
        if all(question.value(operand).shape != shape for operand in allowed):
            return f"{name} that broadcasts its first argument"
    elif arguments.activation is not None:
        return f"{name} of a number, with an activation"
    elif isinstance(b, int) and arguments.function == "add" and _is_counter(question, arguments.a):
        return ""
    elif arguments.function == "divide" and b == 0:
        return f"{name} by zero"
    integers = refuse_integers(arguments, question)
    return integers or without_algorithm(question, arguments.activation)


def _is_counter(question: Question, reference: Ref) -> bool:
    return question.value(reference).dtype == "int64"


def _result_shape(question: Question, a: Ref, b: Ref) -> tuple[int, ...]:
    return np.broadcast_shapes(question.value(a).shape, question.value(b).shape)


IMPLEMENTATIONS = (Implementation(Binary, binary, _refuse),)
