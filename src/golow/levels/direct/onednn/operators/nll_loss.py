"""The negative log likelihood of the targets, and its gradient, by generated kernels or NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.likelihood import likelihood, likelihood_gradient
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.nll_loss import NllLoss, NllLossBackward


def nll_loss(build: Builder, arguments: NllLoss) -> None:
    """-mean or -sum of the targets' log probabilities, and the number of targets that count."""
    mean, ignored = arguments.reduction == "mean", arguments.ignored
    logs, target = build.values.plain(arguments.logs), build.values.tensor(arguments.target)

    def run(logs: Any, target: Any, loss: Any, weight: Any) -> None:
        rows = np.flatnonzero(target != ignored)
        total = -logs[rows, target[rows]].sum(dtype=np.float64)
        weight[...] = len(rows)
        loss[...] = total / len(rows) if mean else total

    scalar = Descriptor.plain(())
    results = [build.memory.new(build.current.output_name(i), (), scalar) for i in (0, 1)]
    if build.generates:
        rows, columns = logs.shape
        build.steps.kernel(likelihood(rows, columns, mean, ignored), [logs, target], results)
    else:
        build.steps.array_call(run, [logs, target], results)
    for index, result in enumerate(results):
        build.values.define(index, result)


def nll_loss_backward(build: Builder, arguments: NllLossBackward) -> None:
    """-gradient (divided by the count, for a mean) at the targets' positions, zero elsewhere."""
    mean, ignored = arguments.reduction == "mean", arguments.ignored
    logs, target = build.values.plain(arguments.logs), build.values.tensor(arguments.target)

    def run(gradient: Any, target: Any, weight: Any, result: Any) -> None:
        rows = np.flatnonzero(target != ignored)
        result[...] = 0
        share = gradient / weight if mean else gradient
        result[rows, target[rows]] = -share

    result = build.memory.new(build.current.output_name(), logs.shape, logs.layout)
    gradient = build.values.tensor(arguments.gradient)
    weight = build.values.tensor(arguments.total_weight)
    given = [gradient, target, weight]
    if build.generates:
        rows, columns = logs.shape
        kernel = likelihood_gradient(rows, columns, mean, ignored)
        build.steps.kernel(kernel, given, [result])
    else:
        build.steps.array_call(run, given, [result])
    build.values.define(0, result)


def _refuse(arguments: NllLoss | NllLossBackward, question: Question) -> str:
    if (dtype := question.value(arguments.target).dtype) != "int64":
        return f"{question.node.op} with targets of {dtype}"
    return not_floating(question, arguments.logs)


IMPLEMENTATIONS = (
    Implementation(NllLoss, nll_loss, _refuse),
    Implementation(NllLossBackward, nll_loss_backward, _refuse),
)
