"""Activations, as tf.nn has them where its gradient is PyTorch's."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.tensorflow.writer import Writer
from golow.levels.traced.writer import number
from golow.lower.ir.graph import Activation
from golow.lower.operators.activation import Activate

# {x}: the argument, {0}, {1}: the numbers. Comparisons, where a bound's gradient is PyTorch's.
ACTIVATIONS = {
    "relu": "tf.nn.relu({x})",
    "clip": "tf.where({x} <= {0}, {0}, tf.where({x} >= {1}, {1}, {x}))",
    "elu": "tf.where({x} > 0, {x}, {0} * tf.math.expm1(tf.minimum({x}, 0.0)))",
    "gelu": "tf.nn.gelu({x}, approximate=False)",
    "gelu_tanh": "tf.nn.gelu({x}, approximate=True)",
    "hardsigmoid": "tf.where({x} <= -3, 0.0, tf.where({x} >= 3, 1.0, {x} / 6 + 0.5))",
    "hardswish": "tf.where({x} <= -3, 0.0, tf.where({x} >= 3, {x}, {x} * ({x} + 3) / 6))",
    "leaky_relu": "tf.nn.leaky_relu({x}, {0})",
    "sigmoid": "tf.math.sigmoid({x})",
    "silu": "tf.nn.silu({x})",
    "tanh": "tf.math.tanh({x})",
}


def activated(expression: str, activation: Activation | None) -> str:
    """The activation of a name; the name itself if there is none."""
    if activation is None:
        return expression
    text = ACTIVATIONS[activation.name]
    return text.format(*map(number, map(float, activation.numbers)), x=expression)


def build(writer: Writer, given: Activate) -> None:
    """``activation(x)``."""
    [x], image = writer.together(given.x)
    writer.put(activated(x, given.activation), image)


def refuse(given: Activate, question: object) -> str:
    """Refuse an activation that is not in the table."""
    known = given.activation.name in ACTIVATIONS
    return "" if known else f"the activation {given.activation.name}"


IMPLEMENTATIONS = (Implementation(Activate, build, refuse),)
