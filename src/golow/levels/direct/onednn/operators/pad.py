"""A tensor surrounded by a constant."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.strided_copies import strided, surrounded
from golow.lower.operators.pad import Pad


def pad(build: Builder, arguments: Pad) -> None:
    """Negative padding cuts x."""
    shape, output = build.current.value(arguments.x).shape, build.current.output()
    value = arguments.value
    sizes = list(zip(arguments.before, shape, output.shape, strict=True))
    inside = tuple(slice(max(0, -first), min(old, new - first)) for first, old, new in sizes)
    outside = tuple(slice(max(0, first), min(new, first + old)) for first, old, new in sizes)

    if build.generates:
        surrounded(build, strided(build, arguments.x), inside, outside, value)
        return

    def run(x: Any, y: Any) -> None:
        y[...] = value
        y[outside] = x[inside]

    of_arrays(build, run, arguments.x)


IMPLEMENTATIONS = (Implementation(Pad, pad),)
