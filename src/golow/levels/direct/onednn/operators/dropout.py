"""Dropout in training, and its gradient, with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.refusing import not_floating, refuse_integers
from golow.lower.operators.dropout import Dropout, DropoutBackward


def dropout(build: Builder, arguments: Dropout) -> None:
    """Set elements of x to zero at random and scale up the others; also define the mask."""
    x, switches = build.values.plain(arguments.x), build.switches
    chance = np.float32(arguments.probability)
    factor = np.float32(1 / (1 - chance) if chance < 1 else 0)
    mask = build.memory.new(build.current.output_name(1), x.shape, dtype="bool")
    result = build.values.in_place_or_new(arguments.x, x)

    def run(x: Any, y: Any, mask: Any) -> None:
        if switches.dropout:
            drawn = switches.random.random(x.shape, dtype=np.float32)
            np.greater_equal(drawn, chance, out=mask)
            np.multiply(x, mask, out=y)
            y *= factor
        else:
            mask[...] = True
            y[...] = x

    build.steps.array_call(run, [x], [result, mask])
    build.values.define(0, result)
    build.values.define(1, mask)


def dropout_backward(build: Builder, arguments: DropoutBackward) -> None:
    """The gradient where the mask kept the value, scaled like the value."""
    outer, switches = build.values.plain(arguments.gradient), build.switches
    factor = np.float32(arguments.scale)
    result = build.values.in_place_or_new(arguments.gradient, outer)

    def run(gradient: Any, mask: Any, result: Any) -> None:
        np.multiply(gradient, mask, out=result)
        if switches.dropout:
            result *= factor

    build.steps.array_call(run, [outer, build.values.tensor(arguments.mask)], [result])
    build.values.define(0, result)


def _refuse_backward(arguments: DropoutBackward, question: Question) -> str:
    return not_floating(question, arguments.gradient)


IMPLEMENTATIONS = (
    Implementation(Dropout, dropout, refuse_integers),
    Implementation(DropoutBackward, dropout_backward, _refuse_backward),
)
