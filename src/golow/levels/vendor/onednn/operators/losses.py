"""Softmax and the choice of the targets' entries: a handful of numbers a row, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.vendor.onednn.builder import Builder, Operator
from golow.levels.vendor.onednn.library import Descriptor
from golow.lower.graph import Node

MEAN, SUM = 1, 2  # PyTorch's codes of a loss's reduction


def softmax(build: Builder, node: Node) -> None:
    """softmax or log-softmax over an axis.

    By NumPy: oneDNN 3.2's own approximates the exponential to 1e-6 only, which is 60 times
    PyTorch's error in a loss, and the rows are short.
    """
    axis = int(node.arguments[1])  # type: ignore[arg-type]
    source = build.plain(node.arguments[0])
    logarithm = "log" in node.op

    def run(x: Any, y: Any) -> None:
        np.subtract(x, x.max(axis=axis, keepdims=True), out=y)
        if logarithm:
            y -= np.log(np.exp(y).sum(axis=axis, keepdims=True, dtype=np.float64))
        else:
            np.exp(y, out=y)
            y /= y.sum(axis=axis, keepdims=True, dtype=np.float64)

    result = build.new(build.output_name(), source.shape, source.layout)
    build.array_call(run, [source], [result])
    build.define(0, result)


def softmax_backward(build: Builder, node: Node) -> None:
    """The gradient of the argument, from that of the result and the result."""
    gradient, outcome, along, _ = node.arguments
    axis = int(along)  # type: ignore[arg-type]
    outer, result = build.plain(gradient), build.plain(outcome)
    logarithm = "log" in node.op

    def run(gradient: Any, result: Any, inner: Any) -> None:
        if logarithm:
            total = gradient.sum(axis=axis, keepdims=True, dtype=np.float64)
            np.multiply(np.exp(result), -total.astype(np.float32), out=inner)
            inner += gradient
        else:
            total = (gradient * result).sum(axis=axis, keepdims=True, dtype=np.float64)
            np.multiply(gradient - total.astype(np.float32), result, out=inner)

    inner = build.new(build.output_name(), outer.shape, outer.layout)
    build.array_call(run, [outer, result], [inner])
    build.define(0, inner)


def nll_loss(build: Builder, node: Node) -> None:
    """-mean or -sum of the targets' log probabilities, and how many targets count."""
    logs, target, ignored = _loss_arguments(build, node.arguments)
    reduction = node.arguments[3]

    def run(logs: Any, target: Any, loss: Any, weight: Any) -> None:
        rows = np.flatnonzero(target != ignored)
        total = -logs[rows, target[rows]].sum(dtype=np.float64)
        weight[...] = len(rows)
        loss[...] = total / len(rows) if reduction == MEAN else total

    scalar = Descriptor.plain(())
    results = [build.new(build.output_name(i), (), scalar) for i in (0, 1)]
    build.array_call(run, [logs, target], results)
    for index, result in enumerate(results):
        build.define(index, result)


def nll_loss_backward(build: Builder, node: Node) -> None:
    """-gradient (over the count, for a mean) at the targets' places, zero elsewhere."""
    gradient, *rest = node.arguments
    logs, target, ignored = _loss_arguments(build, tuple(rest))
    reduction = rest[3]

    def run(gradient: Any, target: Any, weight: Any, result: Any) -> None:
        rows = np.flatnonzero(target != ignored)
        result[...] = 0
        share = gradient / weight if reduction == MEAN else gradient
        result[rows, target[rows]] = -share

    result = build.new(build.output_name(), logs.shape, logs.layout)
    weight = build.tensor(rest[5])
    build.array_call(run, [build.tensor(gradient), target, weight], [result])
    build.define(0, result)


def _loss_arguments(build: Builder, arguments: tuple[Any, ...]) -> tuple[Any, Any, int]:
    logs, target, weight, reduction, ignored = arguments[:5]
    found = build.plain(logs)
    if weight is not None or reduction not in (MEAN, SUM) or len(found.shape) != 2:
        raise build.unsupported("nll_loss with class weights, without reduction, or over images")
    return found, build.tensor(target), ignored


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
