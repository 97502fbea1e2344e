"""Elements along an axis by their indices, and the way back, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.ir.graph import Ref
from golow.lower.operators.gather import Gather, Scatter


def gather(build: Builder, arguments: Gather) -> None:
    """Indices may cover a part of the other axes."""
    axis = arguments.axis

    def run(x: Any, index: Any, y: Any) -> None:
        y[...] = x[_places(index, axis)]

    of_arrays(build, run, arguments.x, arguments.index)


def scatter(build: Builder, arguments: Scatter) -> None:
    """A copy with these places written or added to."""
    axis, add, source = arguments.axis, arguments.add, arguments.source

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


def _places(index: Any, axis: int) -> tuple[Any, ...]:
    grid = np.ogrid[tuple(slice(n) for n in index.shape)]
    return (*grid[:axis], index, *grid[axis + 1 :])


IMPLEMENTATIONS = (
    Implementation(Gather, gather),
    Implementation(Scatter, scatter),
)
