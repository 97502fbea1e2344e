"""How much arithmetic a captured graph needs at the least: products of matrices and convolutions.

It is a lower bound. Operations that are neither are not counted, and a convolution counts as what
fast algorithms (Winograd, FFT) may make of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from golow.lower.graph import Argument, Graph, Node, Ref, Value

FASTEST_CONVOLUTION = 8
"""By how much fast algorithms may reduce the arithmetic of a convolution over more than one pixel.
Winograd's F(4x4, 3x3) needs a fourth, F(4x4, 5x5) a sixth (Lavin & Gray, arXiv:1509.09308)."""

Values = Mapping[str, Value]


def least_operations(graph: Graph) -> float:
    """Floating point operations (a multiplication and an addition are two) of one iteration."""
    values = graph.values()
    return sum(_COUNTS[name](node, values) for node in graph.nodes if (name := _name(node)))


def _name(node: Node) -> str:
    """The operation without namespace and overload; empty if it is not counted."""
    name = node.op.removeprefix("aten.").partition(".")[0]
    return name if node.op.startswith("aten.") and name in _COUNTS else ""


def _shape(argument: Argument, values: Values) -> tuple[int, ...]:
    return values[argument.name].shape if isinstance(argument, Ref) else ()


def _output(node: Node) -> tuple[int, ...]:
    found = node.outputs[0] if node.outputs else None
    return () if found is None else found.shape


def _product(node: Node, values: Values, left: int) -> float:
    """A matrix product whose left factor is the argument at that position."""
    shape = _shape(node.arguments[left], values)
    return 2.0 * math.prod(_output(node)) * (shape[-1] if shape else 0)


def _convolution(pixels: Sequence[int], weight: Sequence[int]) -> float:
    """One convolution with so many results, or gradients of results, as pixels has elements."""
    operations = 2.0 * math.prod(pixels) * math.prod(weight[1:])
    return operations / (FASTEST_CONVOLUTION if math.prod(weight[2:]) > 1 else 1)


def _forward(node: Node, values: Values) -> float:
    x, weight = (_shape(argument, values) for argument in node.arguments[:2])
    transposed = len(node.arguments) > 6 and node.arguments[6] is True
    return _convolution(x if transposed else _output(node), weight)


def _forward_of_dimensions(node: Node, values: Values) -> float:
    return _convolution(_output(node), _shape(node.arguments[1], values))


def _transposed(node: Node, values: Values) -> float:
    x, weight = (_shape(argument, values) for argument in node.arguments[:2])
    return _convolution(x, weight)


def _backward(node: Node, values: Values) -> float:
    gradient, x, weight = (_shape(argument, values) for argument in node.arguments[:3])
    transposed, wanted = node.arguments[7] is True, node.arguments[10]
    count = sum(item is True for item in wanted[:2]) if isinstance(wanted, tuple) else 0
    return count * _convolution(x if transposed else gradient, weight)


_COUNTS: dict[str, Callable[[Node, Values], float]] = {
    "mm": lambda node, values: _product(node, values, 0),
    "bmm": lambda node, values: _product(node, values, 0),
    "matmul": lambda node, values: _product(node, values, 0),
    "linear": lambda node, values: _product(node, values, 0),
    "addmm": lambda node, values: _product(node, values, 1),
    "baddbmm": lambda node, values: _product(node, values, 1),
    "convolution": _forward,
    "conv1d": _forward_of_dimensions,
    "conv2d": _forward_of_dimensions,
    "conv3d": _forward_of_dimensions,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
    "conv_transpose3d": _transposed,
    "convolution_backward": _backward,
}
