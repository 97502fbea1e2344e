"""clip: x limited to two bounds."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Clip, Formulas
from golow.levels.direct.formulas.literals import clipped, number


def value(x: str, low: float, high: float) -> str:
    return clipped(x, low, high)


def backward(gradient: str, of: str, low: float, high: float) -> str:
    """The result is within the bounds exactly where the argument is."""
    outside = f"{of} <= {number(low)} || {of} >= {number(high)}"
    return f"({outside} ? 0.0f : {gradient})"


def limits(low: float, high: float) -> Clip:
    return low, high


ACTIVATIONS = {"clip": Formulas(value, backward, backward, limits)}
