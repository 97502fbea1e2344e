"""gelu: x times the cumulative normal distribution of x."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas


def value(x: str) -> str:
    return f"(0.5f * {x} * (1.0f + erff({x} * 0.70710678118654752f)))"


def from_argument(gradient: str, x: str) -> str:
    """The gradient times the distribution plus x times its density."""
    distribution = f"0.5f * (1.0f + erff({x} * 0.70710678118654752f))"
    return f"{gradient} * ({distribution} + {x} * 0.39894228040143268f * expf(-0.5f * {x} * {x}))"


ACTIVATIONS = {"gelu": Formulas(value, from_argument)}
