"""Adam and AdamW, in the parameters' own memory and layout."""

from __future__ import annotations

from functools import partial

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.constants import BINARY_DIV, BINARY_MUL
from golow.levels.direct.onednn.bindings.primitive import PostOp
from golow.levels.direct.onednn.build import updating
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.step_numbers import adam_numbers
from golow.levels.direct.onednn.steps import array_steps
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.adam_update import AdamStep, AdamUpdate


def adam_step(build: Builder, arguments: AdamStep) -> None:
    """Add a step for the three numbers. The learning rate is stored with its sign
    reversed; the root is stored as what the squares' root is multiplied by."""
    steps = build.values.plain(arguments.steps)
    number = build.outputs.state_for(0) or array_steps.result(build, 0)
    made = [number, array_steps.result(build, 1), array_steps.result(build, 2)]
    given = [steps, build.values.plain(arguments.learning_rate)]
    if build.generates:
        build.steps.kernel(adam_numbers(arguments.betas), given, made)
    else:
        build.steps.array_call(partial(_numbers, betas=arguments.betas), given, made)
    for index, tensor in enumerate(made):
        build.values.define(index, tensor, private=index > 0)


def adam_update(build: Builder, arguments: AdamUpdate) -> None:
    """Momentum and squares, the divisor, and the parameter, which in AdamW shrinks first."""
    if build.generates:
        updating.in_one_pass(build, arguments)
        return
    parameter = build.values.tensor(arguments.parameter)
    first, second = arguments.betas
    decay = 0.0 if arguments.decoupled else arguments.weight_decay
    slope = updating.slope(build, arguments.gradient, parameter, arguments.clip, decay)
    old = build.values.wanted(arguments.momentum, parameter.layout)
    terms = [(updating.flat(old), first), (slope, 1.0 - first)]
    momentum = build.outputs.state_for(0) or build.memory.new(
        build.current.output_name(0), old.shape, old.layout
    )
    mean = updating.weighted_sum(build, terms, updating.flat(momentum), "new_momentum")
    build.values.define(0, momentum)
    old = build.values.wanted(arguments.square, parameter.layout)
    squares = updating.new_squares(build, 1, old, slope, second)
    divisor = updating.root(build, squares, arguments.epsilon, build.values.plain(arguments.root))
    result = updating.updated(build, 2, parameter)
    row = updating.flat(result)
    if arguments.weight_decay and arguments.decoupled:
        rate = build.values.plain(arguments.learning_rate)
        shrunk = PostOp("linear", arguments.weight_decay), PostOp("sum", 1.0)
        updating.combine(build, BINARY_MUL, row, rate, row, "shrink", *shrunk)
    updating.combine(
        build, BINARY_DIV, mean, divisor, row, "new_parameter", PostOp("sum", 1.0),
        factor=build.values.plain(arguments.rate),
    )  # fmt: skip
    build.values.define(2, result)


def _numbers(
    steps: np.ndarray,
    learning_rate: np.ndarray,
    number: np.ndarray,
    rate: np.ndarray,
    root: np.ndarray,
    betas: tuple[float, float],
) -> None:
    number[...] = steps + 1
    first, second = (1.0 - beta ** float(number[()]) for beta in betas)
    rate[...] = learning_rate / first
    root[...] = second**-0.5


IMPLEMENTATIONS = (
    Implementation(AdamStep, adam_step),
    Implementation(AdamUpdate, adam_update, refuse_integers),
)
