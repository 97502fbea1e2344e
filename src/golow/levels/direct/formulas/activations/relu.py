"""relu: the larger of x and zero."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import RELU, Clip, Formulas


def value(x: str) -> str:
    return f"({x} < 0.0f ? 0.0f : {x})"


def backward(gradient: str, of: str) -> str:
    """The result is positive exactly where the argument is."""
    return f"({of} <= 0.0f ? 0.0f : {gradient})"


def limits() -> Clip:
    return RELU


ACTIVATIONS = {"relu": Formulas(value, backward, backward, limits)}
