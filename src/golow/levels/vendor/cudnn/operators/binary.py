"""Arithmetic of two tensors, or of a tensor and a number, and the counting of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.elementwise import apply, in_place_or_new, with_activation
from golow.levels.vendor.cudnn.gathering import whole
from golow.levels.vendor.cudnn.kernels.elements import elements
from golow.levels.vendor.cudnn.kernels.pointwise import number
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.refusing import without_formula
from golow.levels.vendor.cudnn.steps import Tensor
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_floating
from golow.lower.graph import Graph, Ref
from golow.lower.operators.binary import Binary

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder

SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}


def binary(build: Builder, arguments: Binary) -> None:
    """activation(a op b), where b may be a number; shapes broadcast as in PyTorch."""
    sign = SIGNS[arguments.function]
    if build.output().dtype == "int64":
        _of_integers(build, arguments)
    elif isinstance(arguments.b, Ref):
        _of_tensors(build, arguments, arguments.b, sign)
    else:
        x = build.tensor(arguments.a)
        result = in_place_or_new(build, arguments.a, x)
        expression = with_activation(f"a {sign} {number(arguments.b)}", arguments.activation)
        apply(build, expression, [x], result)
        build.define(0, result)


def _of_integers(build: Builder, arguments: Binary) -> None:
    """One more: a counter of the state, or any other integers."""
    if is_counter(arguments, build.graph):
        build.count(arguments.a)
        return
    x = build.rows(arguments.a)
    result = build.new(build.output().name, x.shape, x.layout)
    kernel = elements("a + 1LL", [whole(x)], whole(result), x.shape, "int64")
    build.kernel(kernel, [x], [result])
    build.define(0, result)


def _of_tensors(build: Builder, arguments: Binary, b: Ref, sign: str) -> None:
    one, other, expression = arguments.a, b, f"a {sign} b"
    if build.value(one).shape != build.output().shape:
        one, other, expression = other, one, f"b {sign} a"
    first = build.tensor(one)
    second = _beside(build, other, first)
    result = in_place_or_new(build, one, first)
    apply(build, with_activation(expression, arguments.activation), [first, second], result)
    build.define(0, result)


def _beside(build: Builder, reference: Ref, other: Tensor) -> Tensor:
    """The second operand: of the first one's shape, a single number, or one for each innermost
    index."""
    shape = build.value(reference).shape
    if shape == other.shape:
        return build.wanted(reference, other.layout)
    inner = {"channels_last": 1, "transposed": 0}.get(other.layout.order, len(other.shape) - 1)
    if _long_axes(shape, other.shape) in ([], [inner]):
        return build.wanted(reference, Layout(build.tensor(reference).dtype))
    return build.repeated(build.tensor(reference), other)


def _long_axes(shape: tuple[int, ...], other: tuple[int, ...]) -> list[int]:
    """The axes on which the other shape has one element and this one has more."""
    wide = (*[1] * (len(other) - len(shape)), *shape)
    return [axis for axis, size in enumerate(wide) if size > 1]


def _refuse(arguments: Binary, question: Question) -> str:
    counts = arguments.function == "add" and arguments.b == 1 and arguments.activation is None
    if counts and question.value(arguments.a).dtype == "int64":
        return ""
    second = arguments.b if isinstance(arguments.b, Ref) else None
    return (
        not_floating(question, arguments.a, second)
        or without_formula(question, arguments.activation)
        or _refuse_shapes(arguments.a, second, question)
    )


def _refuse_shapes(a: Ref, b: Ref | None, question: Question) -> str:
    output = question.output()
    given = [question.value(reference).shape for reference in (a, b) if reference is not None]
    if output is None:
        return ""
    if output.shape not in given:
        return f"{question.node.op} that broadcasts both arguments"
    return ""


def is_counter(arguments: Binary, graph: Graph) -> bool:
    """Whether it adds one to a counter of the state, or to the result of such an addition."""
    if arguments.function != "add" or type(arguments.b) is not int or arguments.b != 1:
        return False
    name = arguments.a.name
    if graph.mode == "train":
        counters = (i.value.name for i in graph.inputs if i.kind == "buffer")
        if name in counters:
            return True
    for node in graph.nodes:
        before = Binary.of(node)
        if before is not None and any(v is not None and v.name == name for v in node.outputs):
            return is_counter(before, graph)
    return False


IMPLEMENTATIONS = (Implementation(Binary, binary, _refuse),)
