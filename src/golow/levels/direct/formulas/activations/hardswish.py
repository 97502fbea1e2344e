"""hardswish: x times hardsigmoid(x)."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas
from golow.levels.direct.formulas.literals import clipped


def value(x: str) -> str:
    return f"({x} * {clipped(f'({x} + 3.0f)', 0, 6)} / 6.0f)"


def from_argument(gradient: str, x: str) -> str:
    """At the bounds as in PyTorch: zero at -3, the whole gradient at 3."""
    inside = f"{gradient} * ({x} / 3.0f + 0.5f)"
    return f"{x} <= -3.0f ? 0.0f : {x} < 3.0f ? {inside} : {gradient}"


ACTIVATIONS = {"hardswish": Formulas(value, from_argument)}
