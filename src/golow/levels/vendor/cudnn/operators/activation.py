"""An activation on its own, and its gradient. The functions are in ``activations/``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn.elementwise import activated, apply, in_place_or_new
from golow.levels.vendor.cudnn.formulas import derivative
from golow.levels.vendor.cudnn.refusing import beyond_kernel, without_formula
from golow.levels.vendor.implementation import Implementation, Question
from golow.levels.vendor.refusing import not_floating
from golow.lower.operators.activation import Activate, ActivateBackward

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.builder import Builder


def activate(build: Builder, arguments: Activate) -> None:
    """Add a step: a formula over the argument."""
    x = build.tensor(arguments.x)
    result = in_place_or_new(build, arguments.x, x)
    activated(build, [x], result, arguments.activation)
    build.define(0, result)


def activate_backward(build: Builder, arguments: ActivateBackward) -> None:
    """Add a step: a formula over the gradient and the value that the activation's file names."""
    value = build.tensor(arguments.value)
    outer = build.wanted(arguments.gradient, value.layout)
    result = in_place_or_new(build, arguments.gradient, outer)
    apply(build, _formula(arguments), [outer, value], result)
    build.define(0, result)


def _formula(arguments: ActivateBackward) -> str:
    return derivative(arguments.activation, "a", "b", arguments.from_result)


def _refuse(arguments: Activate, question: Question) -> str:
    integers = not_floating(question, arguments.x)
    return integers or without_formula(question, arguments.activation)


def _refuse_backward(arguments: ActivateBackward, question: Question) -> str:
    return without_formula(question, arguments.activation) or beyond_kernel(
        question, lambda: _formula(arguments)
    )


IMPLEMENTATIONS = (
    Implementation(Activate, activate, _refuse),
    Implementation(ActivateBackward, activate_backward, _refuse_backward),
)
