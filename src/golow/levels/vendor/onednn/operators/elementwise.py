"""Activations and arithmetic, element by element, in the layout in which the values come."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from golow.levels.vendor.onednn.builder import Builder, Operator, Tensor
from golow.levels.vendor.onednn.constants import (
    BINARY_ADD,
    BINARY_DIV,
    BINARY_MUL,
    BINARY_SUB,
    DIFF_DST,
    DIFF_SRC,
    DST,
    ELTWISE,
    ELTWISE_FROM_RESULT,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    SRC,
    SRC_1,
)
from golow.levels.vendor.onednn.library import Descriptor, number
from golow.levels.vendor.onednn.primitive import PostOp, Primitive
from golow.lower.fusion import activation_of
from golow.lower.graph import Argument, Node, Ref

ACTIVATIONS = (
    "relu tanh sigmoid silu hardswish hardsigmoid relu6 hardtanh gelu elu".split()
)  # fmt: skip

# hardswish(x) = x * hardsigmoid(x), and hardsigmoid(x) = max(0, min(1, x / 6 + 1 / 2)).
DEFAULTS = {"hardswish": (1 / 6, 0.5), "hardsigmoid": (1 / 6, 0.5), "silu": (1.0, 0.0)}


def post_op(activation: Argument) -> list[PostOp]:
    """The activation as a post-op; none for none."""
    if not activation:
        return []
    assert isinstance(activation, tuple)  # noqa: S101
    name, given = str(activation[0]), activation[1:]
    numbers = [float(n) for n in given if isinstance(n, int | float)]
    alpha, beta = [*numbers, *DEFAULTS.get(name, (0.0, 0.0))[len(numbers) :]]
    return [PostOp(name, alpha, beta)]


def activation(build: Builder, node: Node) -> None:
    """An activation on its own."""
    found = activation_of(node)
    if found is None:
        raise build.unsupported(f"{node.op} with these settings")
    (setting,) = post_op(found)
    _eltwise(build, node.arguments[0], setting)


def _eltwise(build: Builder, argument: Argument, setting: PostOp) -> None:
    x = build.tensor(argument)
    kind = FORWARD_INFERENCE if build.graph.mode == "infer" else FORWARD_TRAINING
    primitive = Primitive(
        build.engine, "eltwise_forward", kind, ELTWISE[setting.kind], x.layout, x.layout,
        number(setting.alpha), number(setting.beta),
    )  # fmt: skip
    result = build.in_place_or_new(argument, x)
    build.call(primitive, {SRC: x}, {DST: result}, setting.kind)
    build.define(0, result)


def activation_backward(build: Builder, node: Node) -> None:
    """gradient * activation', from the activation's result."""
    gradient, outcome, given = node.arguments
    (setting,) = post_op(given)
    result = build.tensor(outcome)
    outer = build.wanted(gradient, result.layout)
    algorithm = ELTWISE_FROM_RESULT[setting.kind]
    numbers = number(setting.alpha), number(setting.beta)
    forward = Primitive(
        build.engine, "eltwise_forward", FORWARD_TRAINING, algorithm, result.layout,
        result.layout, *numbers,
    )  # fmt: skip
    primitive = Primitive(
        build.engine, "eltwise_backward", algorithm, outer.layout, outer.layout, result.layout,
        *numbers, forward.description,
    )  # fmt: skip
    inner = build.in_place_or_new(gradient, outer)
    build.call(primitive, {DIFF_DST: outer, DST: result}, {DIFF_SRC: inner})
    build.define(0, inner)


def gradient_from_argument(build: Builder, node: Node, name: str) -> None:
    """gradient * activation', from the activation's argument."""
    gradient, argument, *settings = node.arguments
    if name == "gelu" and (settings or list(node.keywords.values())) == ["tanh"]:
        name = "gelu_tanh"
    elif any(s != "none" for s in (*settings, *node.keywords.values())):
        raise build.unsupported(f"{node.op} with these settings")
    _gradient(build, gradient, argument, PostOp(name, *DEFAULTS.get(name, (0.0, 0.0))))


def elu_backward(build: Builder, node: Node) -> None:
    """gradient * elu', from elu's argument."""
    gradient, alpha, scale, input_scale, is_result, argument = node.arguments
    if (scale, input_scale) != (1, 1) or is_result:
        raise build.unsupported(f"{node.op} with these settings")
    _gradient(build, gradient, argument, PostOp("elu", float(alpha)))  # type: ignore[arg-type]


def _gradient(build: Builder, gradient: Argument, argument: Argument, setting: PostOp) -> None:
    name, numbers = setting.kind, [number(setting.alpha), number(setting.beta)]
    x = build.tensor(argument)
    outer = build.wanted(gradient, x.layout)
    forward = Primitive(
        build.engine, "eltwise_forward", FORWARD_TRAINING, ELTWISE[name], x.layout, x.layout,
        *numbers,
    )  # fmt: skip
    primitive = Primitive(
        build.engine, "eltwise_backward", ELTWISE[name], outer.layout, outer.layout, x.layout,
        *numbers, forward.description,
    )  # fmt: skip
    inner = build.in_place_or_new(gradient, outer)
    build.call(primitive, {DIFF_DST: outer, SRC: x}, {DIFF_SRC: inner})
    build.define(0, inner)


def negative(build: Builder, node: Node) -> None:
    """-x."""
    _eltwise(build, node.arguments[0], PostOp("linear", -1.0, 0.0))


def fused_add(build: Builder, node: Node) -> None:
    """activation(a + b)."""
    *operands, given = node.arguments
    _binary(build, operands, BINARY_ADD, post_op(given))


def arithmetic(build: Builder, node: Node, algorithm: int) -> None:
    """a op b, where b may be a number; shapes broadcast as in PyTorch."""
    value = node.outputs[0]
    if len(node.arguments) > 2 or node.keywords or value is None:
        raise build.unsupported(f"{node.op} with a factor")
    a, b = node.arguments
    if value.dtype == "int64" and algorithm == BINARY_ADD:
        count(build, node)
    elif value.dtype != "float32":
        raise build.unsupported(f"{node.op} on {value.dtype}")
    elif isinstance(a, Ref) and isinstance(b, int | float):
        _eltwise(build, a, _linear(algorithm, float(b)))
    elif isinstance(a, Ref) and isinstance(b, Ref):
        _binary(build, [a, b], algorithm, [])
    else:
        raise build.unsupported(f"{node.op} of these arguments")


def count(build: Builder, node: Node) -> None:
    """Integer counters, such as batch norm's number of batches, plus a number."""
    x, step = node.arguments[:2]
    assert isinstance(step, int)  # noqa: S101
    source: Tensor = build.tensor(x)

    def run(x: Any, y: Any) -> None:
        np.add(x, step, out=y)

    result = build.state_for(0) or build.new(build.output_name(), source.shape, dtype="int64")
    build.array_call(run, [source], [result])
    build.define(0, result)


def _linear(algorithm: int, value: float) -> PostOp:
    return {
        BINARY_ADD: PostOp("linear", 1.0, value),
        BINARY_SUB: PostOp("linear", 1.0, -value),
        BINARY_MUL: PostOp("linear", value, 0.0),
        BINARY_DIV: PostOp("linear", 1.0 / value, 0.0),
    }[algorithm]


def _binary(
    build: Builder, operands: list[Argument], algorithm: int, post_ops: list[PostOp]
) -> None:
    value = build.node.outputs[0]
    assert value is not None  # noqa: S101
    first, second = operands
    if algorithm in (BINARY_ADD, BINARY_MUL) and build.tensor(first).shape != value.shape:
        first, second = second, first
    a = build.tensor(first)
    if a.shape != value.shape:
        raise build.unsupported(f"{build.node.op} that widens its first argument")
    b = _beside(build, second, a)
    primitive = Primitive(
        build.engine, "binary", algorithm, a.layout, b.layout, a.layout, post_ops=post_ops
    )
    result = build.in_place_or_new(first, a)
    build.call(primitive, {SRC: a, SRC_1: b}, {DST: result})
    build.define(0, result)


def _beside(build: Builder, argument: Argument, other: Tensor) -> Tensor:
    """The second operand: in the first one's layout, or row-major with ones for what it lacks."""
    shape = build.tensor_shape(argument)
    if shape == other.shape:
        return build.wanted(argument, other.layout)
    tensor = build.plain(argument)
    wide = (*[1] * (len(other.shape) - len(shape)), *shape)
    return tensor._replace(descriptor=Descriptor.plain(wide or (1,) * len(other.shape)))


OPERATORS: dict[str, Operator] = {
    **{f"aten.{name}.default": activation for name in ACTIVATIONS},
    "golow.activation_backward": activation_backward,
    "golow.add": fused_add,
    "aten.silu_backward.default": partial(gradient_from_argument, name="silu"),
    "aten.gelu_backward.default": partial(gradient_from_argument, name="gelu"),
    "aten.hardsigmoid_backward.default": partial(gradient_from_argument, name="hardsigmoid"),
    "aten.elu_backward.default": elu_backward,
    "aten.neg.default": negative,
    "aten.hardswish_backward.default": partial(gradient_from_argument, name="hardswish"),
    "aten.add.Tensor": partial(arithmetic, algorithm=BINARY_ADD),
    "aten.sub.Tensor": partial(arithmetic, algorithm=BINARY_SUB),
    "aten.mul.Tensor": partial(arithmetic, algorithm=BINARY_MUL),
    "aten.div.Tensor": partial(arithmetic, algorithm=BINARY_DIV),
    "aten.add.Scalar": partial(arithmetic, algorithm=BINARY_ADD),
    "aten.mul.Scalar": partial(arithmetic, algorithm=BINARY_MUL),
    "aten.div.Scalar": partial(arithmetic, algorithm=BINARY_DIV),
}
