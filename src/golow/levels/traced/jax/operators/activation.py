"""Activations, as jax.nn has them where its gradient is PyTorch's."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.writer import Writer, number
from golow.lower.ir.graph import Activation
from golow.lower.operators.activation import Activate

# {x}: the argument, {0}, {1}: the numbers. Comparisons, where a bound's gradient would be halved.
ACTIVATIONS = {
    "relu": "jax.nn.relu({x})",
    "clip": "jnp.where({x} <= {0}, {0}, jnp.where({x} >= {1}, {1}, {x}))",
    "elu": "jax.nn.elu({x}, {0})",
    "gelu": "jax.nn.gelu({x}, approximate=False)",
    "gelu_tanh": "jax.nn.gelu({x}, approximate=True)",
    "hardsigmoid": "jnp.where({x} <= -3, 0.0, jnp.where({x} >= 3, 1.0, {x} / 6 + 0.5))",
    "hardswish": "jnp.where({x} <= -3, 0.0, jnp.where({x} >= 3, {x}, {x} * ({x} + 3) / 6))",
    "leaky_relu": "jnp.where({x} > 0, {x}, {0} * {x})",
    "sigmoid": "jax.nn.sigmoid({x})",
    "silu": "jax.nn.silu({x})",
    "tanh": "jnp.tanh({x})",
}


def activated(expression: str, activation: Activation | None) -> str:
    """The activation of a name; the name itself if there is none."""
    if activation is None:
        return expression
    text = ACTIVATIONS[activation.name]
    return text.format(*map(number, activation.numbers), x=expression)


def build(writer: Writer, given: Activate) -> None:
    """``activation(x)``."""
    [x], image = writer.together(given.x)
    writer.put(activated(x, given.activation), image)


def refuse(given: Activate, question: object) -> str:
    """Refuse an activation that is not in the table."""
    known = given.activation.name in ACTIVATIONS
    return "" if known else f"the activation {given.activation.name}"


IMPLEMENTATIONS = (Implementation(Activate, build, refuse),)
