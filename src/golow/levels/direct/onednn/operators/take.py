"""Rows by their indices, and adding to rows, by generated kernels or with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.copies import rows_summed, rows_taken
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result
from golow.lower.operators.take import Take, TakeBackward


def take(build: Builder, arguments: Take) -> None:
    """A copy of these rows."""
    axis = arguments.axis
    if build.generates and math.prod(build.current.output().shape) > 0:
        _by_kernel(build, arguments)
        return

    def run(x: Any, index: Any, y: Any) -> None:
        # Out of bounds is an error of the caller's; "clip" is the mode that writes in place.
        np.take(x, index, axis=axis, out=y, mode="clip")

    of_arrays(build, run, arguments.x, arguments.index)


def _by_kernel(build: Builder, arguments: Take) -> None:
    x, index = build.values.plain(arguments.x), build.values.plain(arguments.index)
    axis, count = arguments.axis, math.prod(index.shape)
    outer, width = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    made = result(build)
    kernel = rows_taken(x.dtype, index.dtype, outer, x.shape[axis], count, width)
    build.steps.kernel(kernel, [x, index], [made])
    build.values.define(0, made)


def take_backward(build: Builder, arguments: TakeBackward) -> None:
    """Zeros with each gradient added to its row."""
    axis, skipped = arguments.axis, arguments.skipped
    if build.generates and math.prod(build.current.output().shape) > 0:
        _sums_by_kernel(build, arguments)
        return

    def run(gradient: Any, index: Any, y: Any) -> None:
        y[...] = 0
        rows = np.moveaxis(y, axis, 0)
        flat = gradient.reshape(*gradient.shape[:axis], -1, *gradient.shape[axis + index.ndim :])
        np.add.at(rows, index.reshape(-1), np.moveaxis(flat, axis, 0))
        if skipped >= 0:
            rows[skipped] = 0

    of_arrays(build, run, arguments.gradient, arguments.index)


def _sums_by_kernel(build: Builder, arguments: TakeBackward) -> None:
    x, index = build.values.plain(arguments.gradient), build.values.plain(arguments.index)
    made, axis, count = result(build), arguments.axis, math.prod(index.shape)
    outer, width = math.prod(made.shape[:axis]), math.prod(made.shape[axis + 1 :])
    kernel = rows_summed(
        x.dtype, index.dtype, outer, made.shape[axis], count, width, arguments.skipped
    )
    build.steps.kernel(kernel, [x, index], [made])
    build.values.define(0, made)


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(TakeBackward, take_backward),
)
