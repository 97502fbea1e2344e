"""A tensor surrounded by a constant, with NumPy."""

from __future__ import annotations

from typing import Any

from golow.levels.vendor.implementation import Implementation
from golow.levels.vendor.onednn.builder import Builder
from golow.levels.vendor.onednn.library import Descriptor
from golow.levels.vendor.refusing import refuse_integers
from golow.lower.operators.pad import Pad


def pad(build: Builder, arguments: Pad) -> None:
    """Negative padding cuts x."""
    x, output, value = build.plain(arguments.x), build.output(), arguments.value
    result = build.new(output.name, output.shape, Descriptor.plain(output.shape))
    sizes = list(zip(arguments.before, x.shape, output.shape, strict=True))
    inside = tuple(slice(max(0, -first), min(old, new - first)) for first, old, new in sizes)
    outside = tuple(slice(max(0, first), min(new, first + old)) for first, old, new in sizes)

    def run(x: Any, y: Any) -> None:
        y[...] = value
        y[outside] = x[inside]

    build.array_call(run, [x], [result])
    build.define(0, result)


IMPLEMENTATIONS = (Implementation(Pad, pad, refuse_integers),)
