"""Numbers to try each activation with, for those that take any."""

from __future__ import annotations

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import activation_functions

NUMBERS: dict[str, list[tuple[float, ...]]] = {
    "clip": [(0.0, 6.0), (-1.0, 1.0), (-0.5, 0.25)],
    "elu": [(1.0,), (0.3,)],
    "leaky_relu": [(0.01,), (0.3,), (0.0,), (1.5,)],
}

ACTIVATIONS = [
    Activation(name=name, numbers=numbers)
    for name in sorted(activation_functions())
    for numbers in NUMBERS.get(name, [()])
]


def text(activation: Activation) -> str:
    return f"{activation.name}{activation.numbers or ''}"
