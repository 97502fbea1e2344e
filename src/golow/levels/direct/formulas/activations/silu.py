"""silu: x times sigmoid(x)."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas


def value(x: str) -> str:
    return f"({x} * (1.0f / (1.0f + expf(-{x}))))"


def from_argument(gradient: str, x: str) -> str:
    sigmoid = f"(1.0f / (1.0f + expf(-{x})))"  # written twice, computed once
    return f"{gradient} * {sigmoid} * (1.0f + {x} * (1.0f - {sigmoid}))"


ACTIVATIONS = {"silu": Formulas(value, from_argument)}
