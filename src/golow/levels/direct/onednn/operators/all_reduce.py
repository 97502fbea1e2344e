"""The mean of gradients over ranks, in memory that the ranks share."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build import updating
from golow.levels.direct.onednn.build.builder import Builder
from golow.lower.operators.all_reduce import AllReduce


def all_reduce(build: Builder, arguments: AllReduce) -> None:
    """One step for all gradients of a bucket, over their memory in any layout: it is the same on
    all ranks, and padding is zero."""
    switches, count = build.switches, len(arguments.gradients)
    given = [build.values.tensor(gradient) for gradient in arguments.gradients]
    made = [
        build.values.in_place_or_new(gradient, tensor, index)
        for index, (gradient, tensor) in enumerate(zip(arguments.gradients, given, strict=True))
    ]

    def run(*arrays: Any) -> None:
        switches.mean(arrays[:count], arrays[count:])

    build.steps.array_call(run, list(map(updating.flat, given)), list(map(updating.flat, made)))
    for index, tensor in enumerate(made):
        build.values.define(index, tensor)


IMPLEMENTATIONS = (Implementation(AllReduce, all_reduce),)
