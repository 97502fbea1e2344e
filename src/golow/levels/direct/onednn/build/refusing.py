"""Checks that several operators of this level make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.implementation import Question
from golow.levels.direct.onednn.bindings.library import has_vnni
from golow.levels.direct.onednn.steps.eltwise import functions_of_elements
from golow.lower.ir.graph import Activation

if TYPE_CHECKING:
    from golow.levels.direct.onednn.build.builder import Builder


def without_algorithm(question: Question, activation: Activation | None) -> str:
    """Refuse an activation that oneDNN has no algorithm for."""
    if activation is None or activation.name in functions_of_elements():
        return ""
    return f"{question.node.op} with the activation {activation.name}"


def require_vnni(build: Builder) -> None:
    """Raise `Unsupported` on a CPU on which oneDNN's sums of 8-bit products may saturate."""
    if not has_vnni():
        raise build.current.unsupported(
            f"{build.current.node.op} on a CPU without VNNI, where sums of 8-bit products saturate"
        )
