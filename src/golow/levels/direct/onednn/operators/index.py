"""Elements by several index tensors: by a generated kernel where the indices are of axes side by
side and of one shape, otherwise with NumPy, which defines it alike. Writing to them is NumPy's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.copies import places_taken
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result
from golow.lower.ir.graph import Ref
from golow.lower.operators.index import Index, IndexPut


def index(build: Builder, arguments: Index) -> None:
    """A copy of the elements."""
    present = [item for item in arguments.indices if item is not None]
    axes = [axis for axis, item in enumerate(arguments.indices) if item is not None]
    forms = {(build.current.value(item).shape, build.current.value(item).dtype) for item in present}
    beside = bool(axes) and axes == list(range(axes[0], axes[-1] + 1)) and len(forms) == 1
    if build.generates and beside and math.prod(build.current.output().shape) > 0:
        _by_kernel(build, arguments.x, present, axes)
        return

    def run(x: Any, *rest: Any) -> None:
        *indices, y = rest
        y[...] = x[_complete(arguments.indices, indices)]

    of_arrays(build, run, arguments.x, *present)


def _by_kernel(build: Builder, source: Ref, indices: list[Ref], axes: list[int]) -> None:
    x, given = build.values.plain(source), [build.values.plain(item) for item in indices]
    sizes, count = [x.shape[axis] for axis in axes], math.prod(given[0].shape)
    outer, width = math.prod(x.shape[: axes[0]]), math.prod(x.shape[axes[-1] + 1 :])
    made = result(build)
    kernel = places_taken(x.dtype, given[0].dtype, outer, sizes, count, width)
    build.steps.kernel(kernel, [x, *given], [made])
    build.values.define(0, made)


def index_put(build: Builder, arguments: IndexPut) -> None:
    """A copy of x with these elements written or added to."""
    present = [item for item in arguments.indices if item is not None]
    add = arguments.add

    def run(x: Any, values: Any, *rest: Any) -> None:
        *indices, y = rest
        y[...] = x
        places = _complete(arguments.indices, indices)
        if add:
            np.add.at(y, places, values)
        else:
            y[places] = values

    of_arrays(build, run, arguments.x, arguments.values, *present)


def _complete(pattern: tuple[Ref | None, ...], indices: list[Any]) -> tuple[Any, ...]:
    rest = iter(indices)
    return tuple(slice(None) if item is None else next(rest) for item in pattern)


IMPLEMENTATIONS = (
    Implementation(Index, index),
    Implementation(IndexPut, index_put),
)
