"""hardsigmoid: x / 6 + 1 / 2, limited to 0 and 1."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas
from golow.levels.direct.formulas.literals import clipped


def value(x: str) -> str:
    return f"({clipped(f'({x} + 3.0f)', 0, 6)} / 6.0f)"


def from_argument(gradient: str, x: str) -> str:
    return f"{x} > -3.0f && {x} < 3.0f ? {gradient} / 6.0f : 0.0f"


ACTIVATIONS = {"hardsigmoid": Formulas(value, from_argument)}
