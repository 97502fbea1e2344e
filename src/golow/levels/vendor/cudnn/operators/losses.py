"""Softmax and the choice of the targets' entries, in float32 whatever the precision."""

from __future__ import annotations

import math
from typing import Any

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.kernels import losses
from golow.levels.vendor.cudnn.layouts import Layout
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Argument, Node

MEAN, SUM = 1, 2  # PyTorch's codes of a loss's reduction
FLOAT = Layout("float32")


def softmax(build: Builder, node: Node) -> None:
    """softmax or log-softmax over the axis whose elements lie together."""
    x, rows, columns = _lines(build, node.arguments[0], node.arguments[1])
    result = build.new(build.output().name, x.shape, x.layout._replace(dtype="float32"))
    build.kernel(losses.softmax(x.dtype, rows, columns, "log" in node.op), [x], [result])
    build.define(0, result)


def softmax_backward(build: Builder, node: Node) -> None:
    """The gradient of the argument, from that of the result and the result."""
    gradient, outcome, axis, _ = node.arguments
    y, rows, columns = _lines(build, outcome, axis)
    outer = build.wanted(gradient, y.layout)
    layout = y.layout._replace(dtype=build.types.computed)
    result = build.new(build.output().name, y.shape, layout)
    kernel = losses.softmax_backward(result.dtype, rows, columns, "log" in node.op)
    build.kernel(kernel, [outer, y], [result])
    build.define(0, result)


def _lines(build: Builder, argument: Argument, axis: Argument) -> tuple[Tensor, int, int]:
    """The tensor with the axis innermost in memory, how many lines there are, how long."""
    shape = build.value(argument).shape
    place = int(axis) % len(shape)  # type: ignore[arg-type]
    dtype = build.tensor(argument).dtype
    if len(shape) == 4 and place == 1:
        tensor = build.wanted(argument, Layout(dtype, "channels_last", shape[1]))
    elif place == len(shape) - 1:
        tensor = build.wanted(argument, Layout(dtype))
    else:
        raise build.unsupported(f"{build.node.op} over an axis in the middle")
    return tensor, math.prod(shape) // shape[place], shape[place]


def nll_loss(build: Builder, node: Node) -> None:
    """-mean or -sum of the targets' log probabilities, and how many targets count."""
    logs, target, mean, ignored = _arguments(build, node.arguments)
    rows, columns = logs.shape
    results = [build.new(f"{node.name}.{i}", (), FLOAT) for i in (0, 1)]
    build.kernel(losses.nll_loss(rows, columns, mean, ignored), [logs, target], results)
    for index, result in enumerate(results):
        build.define(index, result)


def nll_loss_backward(build: Builder, node: Node) -> None:
    """-gradient (over the count, for a mean) at the targets' places, zero elsewhere."""
    gradient, *rest = node.arguments
    logs, target, mean, ignored = _arguments(build, tuple(rest))
    rows, columns = logs.shape
    result = build.new(build.output().name, logs.shape, FLOAT)
    reads = [build.wanted(gradient, FLOAT), target, build.tensor(rest[5])]
    build.kernel(losses.nll_loss_backward(rows, columns, mean, ignored), reads, [result])
    build.define(0, result)


def _arguments(build: Builder, arguments: tuple[Any, ...]) -> tuple[Any, Any, bool, int]:
    logs, target, weight, reduction, ignored = arguments[:5]
    found = build.wanted(logs, FLOAT)
    if weight is not None or reduction not in (MEAN, SUM) or len(found.shape) != 2:
        raise build.unsupported("nll_loss with class weights, without reduction, or over images")
    return found, build.tensor(target), reduction == MEAN, ignored


OPERATORS: dict[str, Operator] = {
    "aten._log_softmax.default": softmax,
    "aten._softmax.default": softmax,
    "aten.log_softmax.int": softmax,
    "aten.softmax.int": softmax,
    "aten._log_softmax_backward_data.default": softmax_backward,
    "aten._softmax_backward_data.default": softmax_backward,
    "aten.nll_loss_forward.default": nll_loss,
    "aten.nll_loss_backward.default": nll_loss_backward,
}
