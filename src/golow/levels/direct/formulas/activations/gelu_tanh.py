"""gelu, approximated with tanh."""

from __future__ import annotations

from golow.levels.direct.formulas.activation_formulas import Formulas


def value(x: str) -> str:
    return f"(0.5f * {x} * (1.0f + {_tanh(x)}))"


def from_argument(gradient: str, x: str) -> str:
    """With t = tanh(u), u = k (x + c x^3): half of 1 + t + x (1 - t^2) k (1 + 3 c x^2)."""
    tanh = _tanh(x)
    inner = f"0.79788456080286536f * (1.0f + 0.134145f * {x} * {x})"
    return f"{gradient} * 0.5f * (1.0f + {tanh} + {x} * (1.0f - {tanh} * {tanh}) * {inner})"


def _tanh(x: str) -> str:
    return f"tanhf(0.79788456080286536f * ({x} + 0.044715f * {x} * {x} * {x}))"


ACTIVATIONS = {"gelu_tanh": Formulas(value, from_argument)}
