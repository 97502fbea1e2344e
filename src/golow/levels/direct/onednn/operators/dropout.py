"""Dropout in training, and its gradient, by generated kernels or with NumPy, which draw the same
masks.

Values are row-major, so that the mask of a seed does not depend on the layouts that were chosen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import dropout as kernels
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.refusing import not_floating, refuse_integers
from golow.lower.operators.dropout import Dropout, DropoutBackward


def dropout(build: Builder, arguments: Dropout) -> None:
    """Set elements of x to zero at random and scale up the others; also define the mask."""
    x = build.values.plain(arguments.x)
    mask = build.memory.new(build.current.output_name(1), x.shape, dtype="bool")
    result = build.values.in_place_or_new(arguments.x, x)
    if build.generates:
        count, generator = math.prod(x.shape), [build.switches.generator]
        kernel = kernels.dropout(count, arguments.probability)
        build.steps.kernel(kernel, [x], [result, mask], beside=generator)
        build.steps.kernel(kernels.advance(count), [], [], "dropout_advance", beside=generator)
    else:
        _draw_with_numpy(build, arguments.probability, x, result, mask)
    build.values.define(0, result)
    build.values.define(1, mask)


def _draw_with_numpy(
    build: Builder, probability: float, x: Tensor, result: Tensor, mask: Tensor
) -> None:
    switches, chance = build.switches, np.float32(probability)
    factor = np.float32(1 / (1 - chance) if chance < 1 else 0)

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


def dropout_backward(build: Builder, arguments: DropoutBackward) -> None:
    """The gradient where the mask kept the value, scaled like the value."""
    outer, mask = build.values.plain(arguments.gradient), build.values.tensor(arguments.mask)
    switches, factor = build.switches, np.float32(arguments.scale)
    result = build.values.in_place_or_new(arguments.gradient, outer)

    def run(gradient: Any, mask: Any, result: Any) -> None:
        np.multiply(gradient, mask, out=result)
        if switches.dropout:
            result *= factor

    if build.generates:
        kernel = kernels.dropout_backward(math.prod(outer.shape), arguments.scale)
        build.steps.kernel(kernel, [outer, mask], [result], beside=[switches.generator])
    else:
        build.steps.array_call(run, [outer, mask], [result])
    build.values.define(0, result)


def _refuse_backward(arguments: DropoutBackward, question: Question) -> str:
    return not_floating(question, arguments.gradient)


IMPLEMENTATIONS = (
    Implementation(Dropout, dropout, refuse_integers),
    Implementation(DropoutBackward, dropout_backward, _refuse_backward),
)
