"""Elements along an axis by their indices, and the way back, by generated kernels or with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.formulas.literals import number
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.places import gathered, scattered
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref
from golow.lower.operators.gather import Gather, Scatter


def gather(build: Builder, arguments: Gather) -> None:
    """Indices may cover a part of the other axes; NumPy takes these."""
    axis = arguments.axis
    x, index = build.values.plain(arguments.x), build.values.plain(arguments.index)
    if build.generates and _covers(index, x, axis):
        made = result(build)
        kernel = gathered(x.dtype, index.dtype, *_sizes(x, index, axis))
        build.steps.kernel(kernel, [x, index], [made])
        build.values.define(0, made)
        return

    def run(x: Any, index: Any, y: Any) -> None:
        y[...] = x[_places(index, axis)]

    of_arrays(build, run, arguments.x, arguments.index)


def scatter(build: Builder, arguments: Scatter) -> None:
    """A copy with these places written or added to."""
    axis, add, source = arguments.axis, arguments.add, arguments.source
    if build.generates and _scattered_by_kernel(build, arguments):
        return

    def put(x: Any, index: Any, given: Any, y: Any) -> None:
        y[...] = x
        places = _places(index, axis)
        if not isinstance(given, float):
            given = given[tuple(slice(n) for n in index.shape)]
        if add:
            np.add.at(y, places, given)
        else:
            y[places] = given

    if isinstance(source, Ref):
        of_arrays(build, put, arguments.x, arguments.index, source)
        return

    def put_number(x: Any, index: Any, y: Any) -> None:
        put(x, index, source, y)

    of_arrays(build, put_number, arguments.x, arguments.index)


def _scattered_by_kernel(build: Builder, arguments: Scatter) -> bool:
    axis, source = arguments.axis, arguments.source
    x, index = build.values.plain(arguments.x), build.values.plain(arguments.index)
    reads, value = [x, index], ""
    if isinstance(source, Ref):
        reads.append(build.values.plain(source))
    elif x.dtype == "float32":
        value = number(source)
    else:
        value = str(int(source))
    if not _covers(index, x, axis) or any(read.shape != index.shape for read in reads[2:]):
        return False
    made = result(build)
    kernel = scattered(
        x.dtype, index.dtype, *_sizes(x, index, axis), add=arguments.add, value=value
    )
    build.steps.kernel(kernel, reads, [made])
    build.values.define(0, made)
    return True


def _covers(index: Tensor, x: Tensor, axis: int) -> bool:
    """True if there are indices for all of the other axes."""
    apart = [shape[:axis] + shape[axis + 1 :] for shape in (index.shape, x.shape)]
    return apart[0] == apart[1] and 0 not in (*index.shape, *x.shape)


def _sizes(x: Tensor, index: Tensor, axis: int) -> tuple[int, int, int, int]:
    """Elements before the axis, of x and of the indices on it, and after it."""
    shape = x.shape
    return math.prod(shape[:axis]), shape[axis], index.shape[axis], math.prod(shape[axis + 1 :])


def _places(index: Any, axis: int) -> tuple[Any, ...]:
    grid = np.ogrid[tuple(slice(n) for n in index.shape)]
    return (*grid[:axis], index, *grid[axis + 1 :])


IMPLEMENTATIONS = (
    Implementation(Gather, gather),
    Implementation(Scatter, scatter),
)
