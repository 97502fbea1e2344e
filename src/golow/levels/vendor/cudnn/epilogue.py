"""Activations that cuDNN computes in the kernel of a convolution, beside those that only clip: its
runtime compiles a kernel with the function in its epilogue.

https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Pointwise.html"""

from __future__ import annotations

from typing import Any

from golow.lower.graph import Activation

# Functions of the front end, whose other arguments have the values that the activations have.
FUNCTIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_approx_tanh",
    "sigmoid": "sigmoid",
    "silu": "swish",
    "tanh": "tanh",
}


def takes_activation(activation: Activation | None) -> bool:
    """Whether the library may have the activation in a convolution's kernel; whether it has one for
    given sizes, only the library knows."""
    return activation is not None and activation.name in FUNCTIONS


def add_activation(graph: Any, tensor: Any, activation: Activation | None) -> Any:
    """Add the activation of a tensor to an operation graph; return its result."""
    if activation is None:
        return tensor
    return getattr(graph, FUNCTIONS[activation.name])(input=tensor)
