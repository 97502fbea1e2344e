"""Activations, as a framework has them where its gradient is PyTorch's."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.dialect import Dialect
from golow.levels.traced.writer import Writer
from golow.lower.ir.graph import Activation
from golow.lower.operators.activation import Activate

# {x}: the argument, {0}, {1}: the numbers, {d}: the dialect. Comparisons, where the gradient of a
# framework's own function at a bound is not PyTorch's.
ACTIVATIONS = {
    "relu": "{d.nn}.relu({x})",
    "clip": "{d.module}.where({x} <= {0}, {0}, {d.module}.where({x} >= {1}, {1}, {x}))",
    "gelu": "{d.nn}.gelu({x}, approximate=False)",
    "gelu_tanh": "{d.nn}.gelu({x}, approximate=True)",
    "hardsigmoid": "{d.module}.where({x} <= -3, 0.0, "
    "{d.module}.where({x} >= 3, 1.0, {x} / 6 + 0.5))",
    "hardswish": "{d.module}.where({x} <= -3, 0.0, "
    "{d.module}.where({x} >= 3, {x}, {x} * ({x} + 3) / 6))",
    "silu": "{d.nn}.silu({x})",
}
OWN = frozenset("elu leaky_relu sigmoid tanh".split())
"""Activations that each dialect spells itself: `Dialect.activations`."""


def activated(
    writer: Writer, expression: str, activation: Activation | None, name: str = "sum"
) -> str:
    """The activation of what an expression gives, which then gets that name; the expression itself
    if there is none."""
    if activation is None:
        return expression
    return _spelled(writer.dialect, writer.line(name, expression), activation)


def build(writer: Writer, given: Activate) -> None:
    """``activation(x)``."""
    [x], image = writer.together(given.x)
    writer.put(_spelled(writer.dialect, x, given.activation), image)


def _spelled(dialect: Dialect, x: str, activation: Activation) -> str:
    """The activation of a name."""
    text = {**ACTIVATIONS, **dialect.activations}[activation.name]
    numbers = (dialect.number(float(number)) for number in activation.numbers)
    return text.format(*numbers, x=x, d=dialect)


def refuse(given: Activate, question: object) -> str:
    """Refuse an activation that has no spelling."""
    name = given.activation.name
    return "" if name in ACTIVATIONS or name in OWN else f"the activation {name}"


IMPLEMENTATIONS = (Implementation(Activate, build, refuse),)
