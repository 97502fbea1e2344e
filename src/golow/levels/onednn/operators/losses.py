"""Softmax by oneDNN; the choice of the target's entry, a handful of numbers, by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.onednn.builder import Builder, Operator
from golow.levels.onednn.library import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    SOFTMAX,
    SOFTMAX_LOG,
    SRC,
    Descriptor,
    Primitive,
)
from golow.lower.graph import Node

MEAN, SUM = 1, 2  # PyTorch's codes of a loss's reduction


def softmax(build: Builder, node: Node) -> None:
    """softmax or log-softmax over an axis."""
    axis = node.arguments[1]
    source = build.plain(node.arguments[0])
    algorithm = SOFTMAX_LOG if "log" in node.op else SOFTMAX
    kind = FORWARD_INFERENCE if build.graph.mode == "infer" else FORWARD_TRAINING
    primitive = Primitive(
        build.engine, "softmax_forward", kind, algorithm, source.layout, source.layout,
        int(axis) % len(source.shape),  # type: ignore[arg-type]
    )  # fmt: skip
    result = build.new(build.output_name(), source.shape, source.layout)
    build.call(primitive, {SRC: source}, {DST: result})
    build.define(0, result)


def softmax_backward(build: Builder, node: Node) -> None:
    """The gradient of the argument, from that of the result and the result."""
    gradient, outcome, axis, _ = node.arguments
    outer, result = build.plain(gradient), build.plain(outcome)
    algorithm = SOFTMAX_LOG if "log" in node.op else SOFTMAX
    axis = int(axis) % len(result.shape)  # type: ignore[arg-type]
    forward = Primitive(
        build.engine, "softmax_forward", FORWARD_TRAINING, algorithm, result.layout,
        result.layout, axis,
    )  # fmt: skip
    primitive = Primitive(
        build.engine, "softmax_backward", algorithm, outer.layout, outer.layout, result.layout,
        axis, forward.description,
    )  # fmt: skip
    inner = build.new(build.output_name(), outer.shape, outer.layout)
    build.call(primitive, {DIFF_DST: outer, DST: result}, {DIFF_SRC: inner})
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
