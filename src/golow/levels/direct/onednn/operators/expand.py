"""A tensor repeated along axes of one element; a view where nothing is repeated."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.strided_copies import copied, strided, view_of
from golow.lower.operators.expand import Expand


def expand(build: Builder, arguments: Expand) -> None:
    """A copy, unless the shape stays as it is, as in attention whose heads share nothing."""
    if build.current.value(arguments.x).shape == build.current.output().shape:
        if build.current.output().dtype == "float32" and not build.views.in_blocks(arguments.x):
            build.views.define(build.views.of(arguments.x))
        else:
            build.values.define(0, build.values.tensor(arguments.x))
        return

    if build.generates:
        x = strided(build, arguments.x)
        copied(build, x, view_of(x, build.current.output().shape))
        return

    def run(x: Any, y: Any) -> None:
        y[...] = x

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (Implementation(Expand, expand),)
