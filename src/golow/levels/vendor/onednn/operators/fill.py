"""A tensor whose elements are all the same number; it is known when the plan is built."""

from __future__ import annotations

import math

import numpy as np

from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.onednn.builder import Builder
from golow.lower.operators.fill import Fill

LARGEST = 1_000_000  # most elements that a plan stores for such a tensor


def fill(build: Builder, arguments: Fill) -> None:
    """Add a constant to the plan."""
    array = np.full(arguments.shape, arguments.value)
    build.define(0, build.constant(build.output_name(), array))


def _refuse(arguments: Fill, question: Question) -> str:
    name, count = question.node.op, math.prod(arguments.shape)
    if arguments.dtype != "float32":
        return f"{name} of {arguments.dtype}"
    return f"{name} of {count:,} elements" if count > LARGEST else ""


IMPLEMENTATIONS = (Implementation(Fill, fill, _refuse),)
