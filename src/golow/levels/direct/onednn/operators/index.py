"""Elements by several index tensors, and writing to them, with NumPy, which defines it alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.lower.ir.graph import Ref
from golow.lower.operators.index import Index, IndexPut


def index(build: Builder, arguments: Index) -> None:
    """A copy of the elements."""
    present = [item for item in arguments.indices if item is not None]

    def run(x: Any, *rest: Any) -> None:
        *indices, y = rest
        y[...] = x[_complete(arguments.indices, indices)]

    of_arrays(build, run, arguments.x, *present)


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
