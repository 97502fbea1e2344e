"""softmax, log softmax and their gradients, by generated kernels, or with NumPy.

oneDNN 3.2's own version approximates the exponential only to 1e-6. In a loss, that is 60 times
PyTorch's error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import Kernel, column_softmax, rows
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.softmax import Softmax, SoftmaxBackward


def softmax(build: Builder, arguments: Softmax) -> None:
    """softmax or log-softmax over an axis."""
    axis, log, x = arguments.axis, arguments.log, build.values.plain(arguments.x)

    def run(x: Any, y: Any) -> None:
        np.subtract(x, x.max(axis=axis, keepdims=True), out=y)
        if log:
            y -= np.log(np.exp(y).sum(axis=axis, keepdims=True, dtype=np.float64))
        else:
            np.exp(y, out=y)
            y /= y.sum(axis=axis, keepdims=True, dtype=np.float64)

    result = build.memory.new(build.current.output_name(), x.shape, x.layout)
    if build.generates and 0 not in x.shape:
        kernel = _kernel(rows.softmax, column_softmax.softmax, x, axis, log)
        build.steps.kernel(kernel, [x], [result])
    else:
        build.steps.array_call(run, [x], [result])
    build.values.define(0, result)


def softmax_backward(build: Builder, arguments: SoftmaxBackward) -> None:
    """The gradient of the argument, from the result and its gradient."""
    axis, log = arguments.axis, arguments.log
    outer, result = build.values.plain(arguments.gradient), build.values.plain(arguments.result)

    def run(gradient: Any, result: Any, inner: Any) -> None:
        if log:
            total = gradient.sum(axis=axis, keepdims=True, dtype=np.float64)
            np.multiply(np.exp(result), -total.astype(np.float32), out=inner)
            inner += gradient
        else:
            total = (gradient * result).sum(axis=axis, keepdims=True, dtype=np.float64)
            np.multiply(gradient - total.astype(np.float32), result, out=inner)

    inner = build.memory.new(build.current.output_name(), outer.shape, outer.layout)
    if build.generates and 0 not in outer.shape:
        kernel = _kernel(rows.softmax_backward, column_softmax.softmax_backward, outer, axis, log)
        build.steps.kernel(kernel, [outer, result], [inner])
    else:
        build.steps.array_call(run, [outer, result], [inner])
    build.values.define(0, inner)


def _kernel(
    of_rows: Callable[[int, int, bool], Kernel],
    of_columns: Callable[[int, int, int, bool], Kernel],
    x: Tensor,
    axis: int,
    log: bool,
) -> Kernel:
    """The kernel for an axis whose elements are side by side, or the one for another axis."""
    outer, columns = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if columns == 1:
        return of_rows(outer, x.shape[axis], log)
    return of_columns(outer, x.shape[axis], columns, log)


IMPLEMENTATIONS = (
    Implementation(Softmax, softmax, refuse_integers),
    Implementation(SoftmaxBackward, softmax_backward, refuse_integers),
)
