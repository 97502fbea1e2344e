"""Elements along an axis by their indices, and the way back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.elements import Lookup
from golow.levels.direct.cudnn.steps.strided_copies import copy, look_up, new_rows, whole
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.lower.ir.graph import Ref
from golow.lower.operators.gather import Gather, Scatter

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
THREADS = 256


def gather(build: Builder, arguments: Gather) -> None:
    """A copy."""
    axis = arguments.axis
    x, index = build.values.rows(arguments.x), build.values.rows(arguments.index)
    result = new_rows(build, x.dtype)
    strides = list(x.layout.strides(x.shape))
    lookup = Lookup(0, x.shape[axis], strides[axis])
    strides[axis] = 0
    table = View(x.dtype, tuple(strides))
    places, there = [(index, whole(index))], (result, whole(result))
    look_up(build, places, (x, table), [lookup], there, result.shape)
    build.values.define(0, result)


def scatter(build: Builder, arguments: Scatter) -> None:
    """A copy of x; then a thread for each line of the index writes or adds, in order."""
    axis = arguments.axis
    index = build.values.rows(arguments.index)
    if isinstance(arguments.source, Ref):
        source = build.values.rows(arguments.source)
    else:
        source = build.memory.number(arguments.source)
    dtype = build.current.output().dtype
    x = build.values.wanted(arguments.x, Layout(dtype))
    result = build.values.result(0, Layout(dtype))
    copy(build, x, whole(x), result, whole(result), x.shape)
    places, from_, to = (t.layout.strides(t.shape) for t in (index, source, result))
    if not isinstance(arguments.source, Ref):
        from_ = (0,) * len(index.shape)
    shape = [*index.shape[:axis], *index.shape[axis + 1 :]]
    lines = math.prod(shape)
    axes = [(n, p, s, t) for k, (n, p, s, t) in
            enumerate(zip(index.shape, places, from_, to, strict=True)) if k != axis]  # fmt: skip
    axes = [(1, 0, 0, 0)] * (4 - len(axes)) + axes
    names = ", ".join(C_TYPES[t.dtype] for t in (index, source, result))
    kernel = Kernel(
        FILE,
        f"scatter_lines<{names}, {'true' if arguments.add else 'false'}>",
        (max(1, -(-lines // THREADS)), 1, 1),
        (THREADS, 1, 1),
        (
            np.int64(lines),
            np.int64(index.shape[axis]),
            np.int64(result.shape[axis]),
            *(np.int64(steps[axis]) for steps in (places, from_, to)),
            *(np.int64(number) for axis_numbers in axes for number in axis_numbers),
        ),
    )
    build.steps.kernel(kernel, [index, source], [result])
    build.values.define(0, result)


def _refuse(arguments: Scatter, question: Question) -> str:
    if len(question.value(arguments.x).shape) > 5:
        return f"{question.node.op} of more than 5 axes"
    if question.value(arguments.x).dtype not in ("float32", "int64"):
        return f"{question.node.op} on {question.value(arguments.x).dtype}"
    return ""


IMPLEMENTATIONS = (
    Implementation(Gather, gather),
    Implementation(Scatter, scatter, _refuse),
)
