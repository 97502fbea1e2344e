"""elu: x where it is positive, else alpha times exp(x) - 1."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas
from golow.levels.direct.formulas.literals import number


def value(x: str, alpha: float) -> str:
    return f"({x} <= 0.0f ? {number(alpha)} * expm1f({x}) : {x})"


def from_argument(gradient: str, x: str, alpha: float) -> str:
    return f"{x} <= 0.0f ? {gradient} * {number(alpha)} * expf({x}) : {gradient}"


ACTIVATIONS = {"elu": Formulas(value, from_argument)}
