"""sigmoid: 1 / (1 + exp(-x))."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas


def value(x: str) -> str:
    return f"(1.0f / (1.0f + expf(-{x})))"


def from_result(gradient: str, y: str) -> str:
    return f"({gradient} * {y} * (1.0f - {y}))"


ACTIVATIONS = {"sigmoid": Formulas(value, from_result=from_result)}
