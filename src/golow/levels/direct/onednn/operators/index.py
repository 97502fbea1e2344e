"""Elements by several index tensors, and writing or adding to them: by generated kernels where the
indices are of axes side by side and of one shape, otherwise with NumPy, which defines it alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.copies import places_put, places_taken
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref
from golow.lower.operators.index import Index, IndexPut


class Beside(NamedTuple):
    """Indices of one shape for axes side by side. outer, sizes, width: elements before these axes,
    on each of them and after them. places: how many they name."""

    indices: list[Tensor]
    outer: int
    sizes: list[int]
    width: int
    places: int

    @property
    def elements(self) -> int:
        """The number of elements at these places."""
        return self.outer * self.places * self.width


def index(build: Builder, arguments: Index) -> None:
    """A copy of the elements."""
    x = build.values.plain(arguments.x)
    found = _beside(build, x, arguments.indices)
    if found is not None and found.elements:
        made, dtypes = result(build), (x.dtype, found.indices[0].dtype)
        kernel = places_taken(*dtypes, found.outer, found.sizes, found.places, found.width)
        build.steps.kernel(kernel, [x, *found.indices], [made])
        build.values.define(0, made)
        return

    def run(x: Any, *rest: Any) -> None:
        *indices, y = rest
        y[...] = x[_complete(arguments.indices, indices)]

    of_arrays(build, run, arguments.x, *_present(arguments.indices))


def index_put(build: Builder, arguments: IndexPut) -> None:
    """A copy of x with these elements written or added to."""
    add = arguments.add
    x, values = build.values.plain(arguments.x), build.values.plain(arguments.values)
    found = _beside(build, x, arguments.indices)
    if found is not None and math.prod(values.shape) == found.elements > 0:
        outer, sizes, places, width = found.outer, found.sizes, found.places, found.width
        made, dtypes = result(build), (x.dtype, found.indices[0].dtype)
        kernel = places_put(*dtypes, outer, sizes, places, width, add=add)
        build.steps.kernel(kernel, [x, values, *found.indices], [made])
        build.values.define(0, made)
        return

    def run(x: Any, values: Any, *rest: Any) -> None:
        *indices, y = rest
        y[...] = x
        places = _complete(arguments.indices, indices)
        if add:
            np.add.at(y, places, values)
        else:
            y[places] = values

    of_arrays(build, run, arguments.x, arguments.values, *_present(arguments.indices))


def _beside(build: Builder, x: Tensor, pattern: Sequence[Ref | None]) -> Beside | None:
    """The indices for a generated kernel; None if it cannot follow them."""
    axes = [axis for axis, item in enumerate(pattern) if item is not None]
    indices = [build.values.plain(item) for item in _present(pattern)]
    forms = {(item.shape, item.dtype) for item in indices}
    if not build.generates or len(forms) != 1 or axes != list(range(axes[0], axes[-1] + 1)):
        return None
    return Beside(
        indices,
        math.prod(x.shape[: axes[0]]),
        [x.shape[axis] for axis in axes],
        math.prod(x.shape[axes[-1] + 1 :]),
        math.prod(indices[0].shape),
    )


def _present(pattern: Sequence[Ref | None]) -> list[Ref]:
    return [item for item in pattern if item is not None]


def _complete(pattern: Sequence[Ref | None], indices: list[Any]) -> tuple[Any, ...]:
    rest = iter(indices)
    return tuple(slice(None) if item is None else next(rest) for item in pattern)


IMPLEMENTATIONS = (
    Implementation(Index, index),
    Implementation(IndexPut, index_put),
)
