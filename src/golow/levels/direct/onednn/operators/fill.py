"""A tensor whose elements are all the same number; it is known when the plan is built."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.operators.fill import Fill

LARGEST = 1_000_000  # most elements that a plan stores for such a tensor


def fill(build: Builder, arguments: Fill) -> None:
    """Add a constant to the plan; what is large, or no float32, is filled by a step."""
    if arguments.dtype != "float32" or math.prod(arguments.shape) > LARGEST:
        value = arguments.value

        def run(y: Any) -> None:
            y[...] = value

        of_arrays(build, run)
        return
    array = np.full(arguments.shape, arguments.value)
    build.values.define(0, build.memory.constant(build.current.output_name(), array))


IMPLEMENTATIONS = (Implementation(Fill, fill),)
