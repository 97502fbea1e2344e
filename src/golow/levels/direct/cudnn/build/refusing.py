"""Checks that several operators of this level make before anything is built."""

from __future__ import annotations

from collections.abc import Callable

from golow.levels.direct.formulas.activation_formulas import formulas
from golow.levels.direct.implementation import Question
from golow.lower.ir.graph import Activation


def without_formula(question: Question, activation: Activation | None) -> str:
    """Refuse an activation without a formula."""
    if activation is None or activation.name in formulas():
        return ""
    return f"{question.node.op} with the activation {activation.name}"


def beyond_kernel(question: Question, make: Callable[[], object]) -> str:
    """Refuse sizes for which ``make`` raises ValueError; its message is the reason."""
    try:
        make()
    except ValueError as error:
        return f"{question.node.op}: {error}"
    return ""
