"""Rows by their indices, and adding to rows, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.arrays import of_arrays
from golow.levels.vendor.onednn.builder import Builder
from golow.lower.operators.take import Take, TakeBackward


def take(build: Builder, arguments: Take) -> None:
    """A copy of these rows."""
    axis = arguments.axis

    def run(x: Any, index: Any, y: Any) -> None:
        # Out of bounds is an error of the caller's; "clip" is the mode that writes in place.
        np.take(x, index, axis=axis, out=y, mode="clip")

    of_arrays(build, run, arguments.x, arguments.index)


def take_backward(build: Builder, arguments: TakeBackward) -> None:
    """Zeros with each gradient added to its row."""
    axis, skipped = arguments.axis, arguments.skipped

    def run(gradient: Any, index: Any, y: Any) -> None:
        y[...] = 0
        rows = np.moveaxis(y, axis, 0)
        flat = gradient.reshape(*gradient.shape[:axis], -1, *gradient.shape[axis + index.ndim :])
        np.add.at(rows, index.reshape(-1), np.moveaxis(flat, axis, 0))
        if skipped >= 0:
            rows[skipped] = 0

    of_arrays(build, run, arguments.gradient, arguments.index)


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(TakeBackward, take_backward),
)
