"""SGD with momentum and weight decay, in the parameters' own memory and layout."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.build import updating
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.sgd_update import SgdUpdate


def sgd_update(build: Builder, arguments: SgdUpdate) -> None:
    """momentum <- factor momentum + slope; parameter <- parameter - learning_rate momentum, or
    - learning_rate (slope + factor momentum) in Nesterov's form. Slope is the gradient with the
    weight decay; without Nesterov, one step adds up all of the momentum."""
    if build.generates:
        updating.in_one_pass(build, arguments)
        return
    parameter = build.values.tensor(arguments.parameter)
    rate = build.values.plain(arguments.learning_rate)
    old = build.values.wanted(arguments.momentum, parameter.layout)
    decay = arguments.weight_decay
    apart = decay if arguments.nesterov else 0.0
    slope = updating.slope(build, arguments.gradient, parameter, arguments.clip, apart)
    terms = [(updating.flat(old), arguments.factor), (slope, 1.0)]
    if decay and not arguments.nesterov:
        terms.append((updating.flat(parameter), decay))
    momentum = build.outputs.state_for(0) or build.memory.new(
        build.current.output_name(0), old.shape, old.layout
    )
    change = updating.flat(momentum)
    updating.weighted_sum(build, terms, change, "new_momentum")
    build.values.define(0, momentum)
    if arguments.nesterov:
        change = updating.weighted_sum(build, [(slope, 1.0), (change, arguments.factor)])
    updating.move(build, 1, parameter, change, rate)


IMPLEMENTATIONS = (Implementation(SgdUpdate, sgd_update, refuse_integers),)
