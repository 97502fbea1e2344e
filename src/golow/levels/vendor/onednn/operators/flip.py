"""Axes reversed: a copy by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.arrays import of_arrays
from golow.levels.vendor.onednn.builder import Builder
from golow.lower.operators.flip import Flip


def flip(build: Builder, arguments: Flip) -> None:
    """A copy."""
    axes = arguments.axes

    def run(x: Any, y: Any) -> None:
        y[...] = np.flip(x, axes)

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (Implementation(Flip, flip),)
