"""Sorted elements and positions of extremes, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays, results_of_arrays
from golow.lower.operators.sort import ArgReduce, Sort


def sort(build: Builder, arguments: Sort) -> None:
    """Stable: the order of equal elements is kept, in descending order too."""
    axis, descending = arguments.axis, arguments.descending

    def run(x: Any, values: Any, places: Any) -> None:
        if descending:  # the last of equal elements comes last: sort backwards, then turn
            backwards = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
            order = np.flip(x.shape[axis] - 1 - backwards, axis)
        else:
            order = np.argsort(x, axis=axis, kind="stable")
        if values is not None:
            values[...] = np.take_along_axis(x, order, axis)
        if places is not None:
            places[...] = order

    results_of_arrays(build, run, [arguments.x])


def place(build: Builder, arguments: ArgReduce) -> None:
    """The first of several equal ones."""
    axis, keep = arguments.axis, arguments.keep
    function = np.argmax if arguments.function == "maximum" else np.argmin

    def run(x: Any, y: Any) -> None:
        y[...] = function(x, axis=axis, keepdims=keep)

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (
    Implementation(Sort, sort),
    Implementation(ArgReduce, place),
)
