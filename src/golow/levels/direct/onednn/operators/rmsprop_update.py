"""RMSprop, in the parameters' own memory and layout."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.constants import BINARY_DIV
from golow.levels.direct.onednn.bindings.primitive import PostOp
from golow.levels.direct.onednn.build import updating
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.rmsprop_update import RmspropUpdate


def rmsprop_update(build: Builder, arguments: RmspropUpdate) -> None:
    """Squares, the momentum if there is one, and the parameter."""
    if build.generates:
        updating.in_one_pass(build, arguments)
        return
    parameter = build.values.tensor(arguments.parameter)
    rate = build.values.plain(arguments.learning_rate)
    decay, momentum = arguments.weight_decay, arguments.momentum
    slope = updating.slope(build, arguments.gradient, parameter, arguments.clip, decay)
    old = build.values.wanted(arguments.square, parameter.layout)
    squares = updating.new_squares(build, 0, old, slope, arguments.smoothing)
    divisor = updating.root(build, squares, arguments.epsilon)
    if momentum is None:
        change = updating.like(build, divisor)
        updating.combine(build, BINARY_DIV, slope, divisor, change, "change")
        updating.move(build, 1, parameter, change, rate)
        return
    moved = updating.updated(build, 1, build.values.wanted(momentum, parameter.layout))
    row, kept = updating.flat(moved), PostOp("sum", arguments.factor)
    updating.combine(build, BINARY_DIV, slope, divisor, row, "new_momentum", kept)
    build.values.define(1, moved)
    updating.move(build, 2, parameter, row, rate)


IMPLEMENTATIONS = (Implementation(RmspropUpdate, rmsprop_update, refuse_integers),)
