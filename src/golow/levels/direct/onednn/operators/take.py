"""Rows by their indices, and adding to rows, by generated kernels or with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import flagged_rows
from golow.levels.direct.onednn.kernels.copies import rows_summed, rows_taken
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result
from golow.lower.fuse.optimizer_updates import UPDATES
from golow.lower.ir.graph import Node, Ref
from golow.lower.operators.take import Take, TakeBackward

NARROW = 8  # numbers in a row: of fewer, looking at flags takes longer than the row


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
    outer, rows = math.prod(made.shape[:axis]), made.shape[axis]
    width, skipped = math.prod(made.shape[axis + 1 :]), arguments.skipped
    if axis == 0 and rows > count and width >= NARROW and _only_updates_read(build):
        flags = build.memory.new(f"{build.current.name}.flags", (rows,), dtype="bool")
        kernel = flagged_rows.rows_summed(index.dtype, rows, count, width, skipped)
        build.steps.kernel(kernel, [x, index], [made, flags])
        build.values.define(0, made._replace(flags=flags))
        return
    kernel = rows_summed(x.dtype, index.dtype, outer, rows, count, width, skipped)
    build.steps.kernel(kernel, [x, index], [made])
    build.values.define(0, made)


def _only_updates_read(build: Builder) -> bool:
    """True if nothing in an iteration reads the gradient but updates of row-major tables: only they
    know which of its rows are written."""
    name, graph = build.current.output().name, build.current.graph
    readers = [graph.nodes[position] for position in build.current.links.readers[name]]
    kinds = {item.kind for item in graph.outputs if item.name == name}
    if not readers or not kinds <= {"gradient"}:
        return False
    return all(node.op in UPDATES and _is_row_major(build, node) for node in readers)


def _is_row_major(build: Builder, update: Node) -> bool:
    parameter = update.keywords["parameter"]
    return isinstance(parameter, Ref) and build.values.tensor(parameter).layout.is_plain


IMPLEMENTATIONS = (
    Implementation(Take, take),
    Implementation(TakeBackward, take_backward),
)
