"""Rows of a table of bf16 as float32, by a generated kernel or with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.copies import rows_widened
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result
from golow.lower.operators.narrow_take import NarrowTake


def narrow_take(build: Builder, arguments: NarrowTake) -> None:
    """A copy of these rows."""
    if not build.generates or not math.prod(build.current.output().shape):
        of_arrays(build, _widened_rows, arguments.x, arguments.index)
        return
    x, index = build.values.plain(arguments.x), build.values.plain(arguments.index)
    made = result(build)
    kernel = rows_widened(index.dtype, x.shape[0], math.prod(index.shape), x.shape[1])
    build.steps.kernel(kernel, [x, index], [made])
    build.values.define(0, made)


def _widened_rows(x: Any, index: Any, y: Any) -> None:
    y[...] = np.take(x, index, axis=0, mode="clip")


def _refuse(arguments: NarrowTake, question: Question) -> str:
    dtype = question.value(arguments.x).dtype
    return "" if dtype == "bfloat16" else f"{question.node.op} of {dtype}"


IMPLEMENTATIONS = (Implementation(NarrowTake, narrow_take, _refuse, frozenset({"bfloat16"})),)
