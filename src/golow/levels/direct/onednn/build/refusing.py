"""Checks that several operators of this level make before anything is built."""

from __future__ import annotations

from golow.levels.direct.implementation import Question
from golow.levels.direct.onednn.steps.eltwise import functions_of_elements
from golow.lower.ir.graph import Activation


def without_algorithm(question: Question, activation: Activation | None) -> str:
    """Refuse an activation that oneDNN has no algorithm for."""
    if activation is None or activation.name in functions_of_elements():
        return ""
    return f"{question.node.op} with the activation {activation.name}"
