"""leaky_relu: x where it is positive, else x times a slope."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas
from golow.levels.direct.formulas.literals import number


def value(x: str, slope: float) -> str:
    return f"({x} > 0.0f ? {x} : {number(slope)} * {x})"


def backward(gradient: str, of: str, slope: float) -> str:
    """The result is positive exactly where the argument is."""
    return f"({of} > 0.0f ? {gradient} : {number(slope)} * {gradient})"


ACTIVATIONS = {"leaky_relu": Formulas(value, backward, backward)}
