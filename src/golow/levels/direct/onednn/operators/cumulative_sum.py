"""Running sums, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.operators.cumulative_sum import CumulativeSum


def cumulative_sum(build: Builder, arguments: CumulativeSum) -> None:
    """In the type of the result."""
    axis = arguments.axis

    def run(x: Any, y: Any) -> None:
        np.cumsum(x, axis=axis, dtype=y.dtype, out=y)

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (Implementation(CumulativeSum, cumulative_sum),)
