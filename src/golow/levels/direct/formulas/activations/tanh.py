"""tanh: the hyperbolic tangent."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas


def value(x: str) -> str:
    return f"tanhf({x})"


def from_result(gradient: str, y: str) -> str:
    return f"({gradient} * (1.0f - {y} * {y}))"


ACTIVATIONS = {"tanh": Formulas(value, from_result=from_result)}
