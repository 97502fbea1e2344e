"""Activations and arithmetic, element by element, in the layout in which the values come."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.kernels.pointwise import Operand, number, pointwise
from golow.levels.vendor.cudnn.kernels.pointwise import activation as formula
from golow.levels.vendor.cudnn.kernels.pointwise import activation_backward as gradient_formula
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.fusion import activation_of
from golow.lower.graph import Argument, Node, Ref

ACTIVATIONS = "relu tanh sigmoid silu hardswish hardsigmoid relu6 hardtanh gelu elu".split()

_TANH = "tanhf(0.79788456080286536f * (b + 0.044715f * b * b * b))"

# The derivative of an activation in terms of its argument b; a is the gradient of the result.
DERIVATIVES = {
    "silu": "a / (1.0f + expf(-b)) * (1.0f + b * (1.0f - 1.0f / (1.0f + expf(-b))))",
    "hardsigmoid": "b > -3.0f && b < 3.0f ? a / 6.0f : 0.0f",
    "hardswish": "b < -3.0f ? 0.0f : b <= 3.0f ? a * (b / 3.0f + 0.5f) : a",
    "gelu": "a * (0.5f * (1.0f + erff(b * 0.70710678118654752f))"
    " + b * 0.39894228040143268f * expf(-0.5f * b * b))",
    # With t = tanh(u), u = k (b + c b^3): half of 1 + t + b (1 - t^2) k (1 + 3 c b^2).
    "gelu_tanh": f"a * 0.5f * (1.0f + {_TANH} + b * (1.0f - {_TANH} * {_TANH})"
    " * 0.79788456080286536f * (1.0f + 0.134145f * b * b))",
}


def activated(build: Builder, tensors: Sequence[Tensor], result: Tensor, activation: Any) -> None:
    """A step: activation(sum of the tensors), which lie alike."""
    total = " + ".join("abcde"[: len(tensors)])
    expression = formula(activation[0], activation[1:], total) if activation else total
    apply(build, expression, tensors, result)


def apply(build: Builder, expression: str, tensors: Sequence[Tensor], result: Tensor) -> None:
    """A step: a formula over tensors that lie alike, or are one number, or one for each of the
    channels that lie innermost."""
    channels = innermost(result)
    operands = [Operand(tensor.dtype, _kind(tensor, result, channels)) for tensor in tensors]
    kernel = pointwise([expression], operands, [result.dtype], result.elements, channels)
    build.kernel(kernel, tensors, [result])


def _kind(tensor: Tensor, result: Tensor, channels: int) -> Any:
    if tensor.elements == result.elements:
        return "full"
    return "scalar" if tensor.elements == 1 else "channel"


def innermost(tensor: Tensor) -> int:
    """How many elements lie next to one another before another index changes."""
    if tensor.layout.order == "channels_last":
        return tensor.layout.channels
    return tensor.shape[-1] if tensor.shape else 1


def activation(build: Builder, node: Node) -> None:
    """An activation on its own."""
    found = activation_of(node)
    if found is None:
        raise build.unsupported(f"{node.op} with these settings")
    x = build.tensor(node.arguments[0])
    result = in_place_or_new(build, node.arguments[0], x)
    activated(build, [x], result, found)
    build.define(0, result)


def in_place_or_new(build: Builder, argument: Argument, tensor: Tensor) -> Tensor:
    """Where to write a result of that tensor's layout: over the argument, if it dies here."""
    if build.dies(argument) and build.tensor(argument).buffer == tensor.buffer:
        return tensor
    return build.new(build.output().name, tensor.shape, tensor.layout)


def activation_backward(build: Builder, node: Node) -> None:
    """gradient * activation', from the activation's result."""
    gradient, outcome, given = node.arguments
    assert isinstance(given, tuple)  # noqa: S101
    y = build.tensor(outcome)
    outer = build.wanted(gradient, y.layout)
    result = in_place_or_new(build, gradient, outer)
    numbers: Any = given[1:]
    apply(build, gradient_formula(str(given[0]), numbers, "a", "b"), [outer, y], result)
    build.define(0, result)


def gradient_from_argument(build: Builder, node: Node, name: str) -> None:
    """gradient * activation', from the activation's argument."""
    gradient, argument, *settings = node.arguments
    if name == "gelu" and (settings or list(node.keywords.values())) == ["tanh"]:
        name = "gelu_tanh"
    elif any(s != "none" for s in (*settings, *node.keywords.values())):
        raise build.unsupported(f"{node.op} with these settings")
    _derived(build, gradient, argument, DERIVATIVES[name])


def elu_backward(build: Builder, node: Node) -> None:
    """gradient * elu', from elu's argument."""
    gradient, alpha, scale, input_scale, is_result, argument = node.arguments
    if (scale, input_scale) != (1, 1) or is_result or not isinstance(alpha, int | float):
        raise build.unsupported(f"{node.op} with these settings")
    _derived(build, gradient, argument, f"b <= 0.0f ? a * {number(alpha)} * expf(b) : a")


def _derived(build: Builder, gradient: Argument, argument: Argument, expression: str) -> None:
    x = build.tensor(argument)
    outer = build.wanted(gradient, x.layout)
    result = in_place_or_new(build, gradient, outer)
    apply(build, expression, [outer, x], result)
    build.define(0, result)


def negative(build: Builder, node: Node) -> None:
    """-x."""
    x = build.tensor(node.arguments[0])
    result = in_place_or_new(build, node.arguments[0], x)
    apply(build, "-a", [x], result)
    build.define(0, result)


def fused_add(build: Builder, node: Node) -> None:
    """activation(a + b)."""
    one, other, given = node.arguments
    first = build.tensor(one)
    second = build.wanted(other, first.layout)
    result = in_place_or_new(build, one, first)
    activated(build, [first, second], result, given)
    build.define(0, result)


def arithmetic(build: Builder, node: Node, sign: str) -> None:
    """a op b, where b may be a number; shapes broadcast as in PyTorch."""
    if len(node.arguments) > 2 or node.keywords:
        raise build.unsupported(f"{node.op} with a factor")
    one, other = node.arguments
    value = build.output()
    if value.dtype == "int64" and sign == "+" and isinstance(other, int):
        build.count(one, other)
    elif value.dtype != "float32":
        raise build.unsupported(f"{node.op} on {value.dtype}")
    elif isinstance(one, Ref) and isinstance(other, int | float):
        x = build.tensor(one)
        result = in_place_or_new(build, one, x)
        apply(build, f"a {sign} {number(other)}", [x], result)
        build.define(0, result)
    elif isinstance(one, Ref) and isinstance(other, Ref):
        _binary(build, one, other, sign)
    else:
        raise build.unsupported(f"{node.op} of these arguments")


def _binary(build: Builder, one: Ref, other: Ref, sign: str) -> None:
    shape = build.output().shape
    expression = f"a {sign} b"
    if build.value(one).shape != shape:
        one, other, expression = other, one, f"b {sign} a"
    if build.value(one).shape != shape:
        raise build.unsupported(f"{build.node.op} that widens both arguments")
    first = build.tensor(one)
    second = _beside(build, other, first)
    result = in_place_or_new(build, one, first)
    apply(build, expression, [first, second], result)
    build.define(0, result)


def _beside(build: Builder, argument: Ref, other: Tensor) -> Tensor:
    """The second operand: like the first, one number, or one for each innermost index."""
    shape = build.value(argument).shape
    if shape == other.shape:
        return build.wanted(argument, other.layout)
    wide = (*[1] * (len(other.shape) - len(shape)), *shape)
    long = [axis for axis, size in enumerate(wide) if size > 1]
    inner = 1 if other.layout.order == "channels_last" else len(wide) - 1
    if long in ([], [inner]):
        return build.wanted(argument, Layout(build.tensor(argument).dtype))
    return build.repeated(build.tensor(argument), other)


OPERATORS: dict[str, Operator] = {
    **{f"aten.{name}.default": activation for name in ACTIVATIONS},
    "golow.activation_backward": activation_backward,
    "golow.add": fused_add,
    **{
        f"aten.{name}_backward.default": partial(gradient_from_argument, name=name)
        for name in DERIVATIVES
        if name != "gelu_tanh"
    },
    "aten.elu_backward.default": elu_backward,
    "aten.neg.default": negative,
    **{
        f"aten.{name}.{kind}": partial(arithmetic, sign=sign)
        for name, sign in {"add": "+", "sub": "-", "mul": "*", "div": "/"}.items()
        for kind in ("Tensor", "Scalar")
    },
}
