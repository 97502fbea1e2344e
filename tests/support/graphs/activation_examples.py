"""The examples of all activations: numbers to try each with, and its layers."""

from __future__ import annotations

from torch import nn

from golow.lower.ir.graph import Activation
from support.graphs.example_files import examples_in

_EXAMPLES = {
    path.rpartition("/")[2]: module
    for path, module in examples_in("operators", "activations").items()
}

ACTIVATIONS = [
    Activation(name=name, numbers=numbers)
    for name, module in _EXAMPLES.items()
    for numbers in getattr(module, "NUMBERS", [()])
]
ACTIVATION_LAYERS: dict[nn.Module, Activation] = {
    layer: Activation(name=name, numbers=numbers)
    for name, module in _EXAMPLES.items()
    for layer, numbers in getattr(module, "LAYERS", {}).items()
}


def text(activation: Activation) -> str:
    return f"{activation.name}{activation.numbers or ''}"
