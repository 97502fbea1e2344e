"""Activations that the level cannot run. The functions are in ``activations/``;
`fused_pointwise.py` puts them into kernels."""

from __future__ import annotations

from golow.levels.direct.cudnn.build.refusing import beyond_kernel, without_formula
from golow.levels.direct.formulas.activation_formulas import derivative
from golow.levels.direct.implementation import Implementation, Question, in_groups
from golow.levels.direct.refusing import not_floating
from golow.lower.operators.activation import Activate, ActivateBackward


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
    Implementation(Activate, in_groups, _refuse),
    Implementation(ActivateBackward, in_groups, _refuse_backward),
)
