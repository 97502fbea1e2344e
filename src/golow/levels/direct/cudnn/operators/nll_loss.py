"""Negative log likelihood: selects the targets' log probabilities, in float32 for any precision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import require_positive
from golow.levels.direct.cudnn.shared_kernels.rows import ROWS, threads_for
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.nll_loss import NllLoss, NllLossBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
ONE_BLOCK = 1024  # threads of a kernel that runs in one block
FLOAT = Layout("float32")


def nll_loss(build: Builder, arguments: NllLoss) -> None:
    """-mean or -sum of the targets' log probabilities, and the number of targets that count."""
    logs, target = build.values.wanted(arguments.logs, FLOAT), build.values.tensor(arguments.target)
    rows, columns = logs.shape
    results = [build.memory.new(f"{build.current.name}.{i}", (), FLOAT) for i in (0, 1)]
    kernel = forward_kernel(rows, columns, arguments.reduction == "mean", arguments.ignored)
    build.steps.kernel(kernel, [logs, target], results)
    for index, result in enumerate(results):
        build.values.define(index, result)


def nll_loss_backward(build: Builder, arguments: NllLossBackward) -> None:
    """-gradient (divided by the count, for a mean) at the targets' positions, zero elsewhere."""
    logs, target = build.values.wanted(arguments.logs, FLOAT), build.values.tensor(arguments.target)
    rows, columns = logs.shape
    result = build.memory.new(build.current.output().name, logs.shape, FLOAT)
    mean = arguments.reduction == "mean"
    kernel = backward_kernel(rows, columns, mean, arguments.ignored)
    gradient = build.values.wanted(arguments.gradient, FLOAT)
    total = build.values.tensor(arguments.total_weight)
    build.steps.kernel(kernel, [gradient, target, total], [result])
    build.values.define(0, result)


def _refuse(arguments: NllLoss | NllLossBackward, question: Question) -> str:
    if (dtype := question.value(arguments.target).dtype) != "int64":
        return f"{question.node.op} with targets of {dtype}"
    return not_floating(question, arguments.logs)


# ---------------------------------------------------------------- kernels


def forward_kernel(rows: int, columns: int, mean: bool, ignored: int = -100) -> Kernel:
    """Pointers: log softmax [rows, columns] (float32), target [rows] (int64) -> loss, weight
    (float32 scalars). weight: the number of targets that are not ``ignored``."""
    require_positive(rows=rows, columns=columns)
    scalars = (np.int32(rows), np.int32(columns), np.int32(mean), np.int64(ignored))
    return Kernel(FILE, f"nll_loss<{ONE_BLOCK}>", (1, 1, 1), (ONE_BLOCK, 1, 1), scalars, code=ROWS)


def backward_kernel(rows: int, columns: int, mean: bool, ignored: int = -100) -> Kernel:
    """Pointers: gradient (float32 scalar), target [rows] (int64), weight (float32 scalar) ->
    gradient of the log softmax [rows, columns] (float32)."""
    require_positive(rows=rows, columns=columns)
    threads = threads_for(columns)
    scalars = (np.int32(columns), np.int32(mean), np.int64(ignored))
    name = f"nll_loss_backward<{threads}>"
    return Kernel(FILE, name, (rows, 1, 1), (threads, 1, 1), scalars, code=ROWS)


IMPLEMENTATIONS = (
    Implementation(NllLoss, nll_loss, _refuse),
    Implementation(NllLossBackward, nll_loss_backward, _refuse),
)
