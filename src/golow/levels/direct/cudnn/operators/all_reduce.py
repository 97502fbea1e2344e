"""The mean of gradients over ranks, in the places that the plan keeps for them."""

from __future__ import annotations

from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.all_reduce import AllReduce


def all_reduce(build: Builder, arguments: AllReduce) -> None:
    """Put each gradient in its place. What the ranks exchange is whole groups of parameters: those
    whose gradients are all there now, in one step."""
    training, values = build.training, build.values
    targets = []
    for index, gradient in enumerate(arguments.gradients):
        targets.append(training.target_of(build.current.output(index).name))
        place, made = training.gradient(targets[-1]), values.view(gradient)
        if made.buffer != place.buffer:
            values.copy(made, place)
        values.define(index, place)
    if groups := build.updating.averaged(build, targets):
        members = [target for group in groups for target in training.members(group)]
        build.steps.average(
            [(group, training.gradient_type(group)) for group in groups],
            [training.gradients[target] for target in members],
        )
        values.changed([training.gradient_name(target) for target in members])


IMPLEMENTATIONS = (Implementation(AllReduce, all_reduce),)
