"""The mean of gradients over ranks, in memory that the ranks share."""

from __future__ import annotations

from typing import Any

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build import updating
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref
from golow.lower.operators.all_reduce import AllReduce


def all_reduce(build: Builder, arguments: AllReduce) -> None:
    """One step for all gradients of a bucket, in the layouts of their parameters. These are the
    same on all ranks, those of gradients may change with the batch; padding is zero."""
    switches, count = build.switches, len(arguments.gradients)
    given = [
        _like_parameter(build, index, gradient)
        for index, gradient in enumerate(arguments.gradients)
    ]
    made = [
        build.values.in_place_or_new(gradient, tensor, index)
        for index, (gradient, tensor) in enumerate(zip(arguments.gradients, given, strict=True))
    ]

    def run(*arrays: Any) -> None:
        switches.mean(arrays[:count], arrays[count:])

    build.steps.array_call(run, list(map(updating.flat, given)), list(map(updating.flat, made)))
    for index, tensor in enumerate(made):
        build.values.define(index, tensor)


def _like_parameter(build: Builder, index: int, gradient: Ref) -> Tensor:
    graph, name = build.current.graph, build.current.output(index).name
    target = next(o.target for o in graph.outputs if (o.kind, o.name) == ("gradient", name))
    held = ("parameter", target)
    parameter = next(i.value.name for i in graph.inputs if (i.kind, i.target) == held)
    return build.values.wanted(gradient, build.values.tensor(Ref(name=parameter)).layout)


IMPLEMENTATIONS = (Implementation(AllReduce, all_reduce),)
