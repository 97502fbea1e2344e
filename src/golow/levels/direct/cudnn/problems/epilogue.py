"""Activations that cuDNN computes in the kernel of a convolution, besides those that only clip: its
runtime compiles a kernel with the function in its epilogue.

https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Pointwise.html"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Activation

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine, Engines, Operation
    from golow.levels.direct.cudnn.problems.products import Convolution

# Time of a pass over memory besides the transfers: a launch within a CUDA graph.
PASS_NS = 2000

GELU = Activation(name="gelu_tanh")  # by tanh: cuBLASLt, too, has it in its kernels

# Functions of the front end, whose other arguments have the values that the activations have.
FUNCTIONS = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_approx_tanh",
    "sigmoid": "sigmoid",
    "silu": "swish",
    "tanh": "tanh",
}


def takes_activation(activation: Activation | None) -> bool:
    """True if the library may have the activation in a convolution's kernel; whether it has one for
    given sizes, only the library knows."""
    return activation is not None and activation.name in FUNCTIONS


def activating(engines: Engines, whole: Convolution, rest: Operation) -> Engine | None:
    """Return the engine that has the activation in its kernel, if it is faster than one without and
    a pass over its result; None if it is not, or nothing was timed."""
    if not engines.times or whole.activation is None:
        return None
    if engines.time_of(whole) >= engines.time_of(rest) + pass_ns(engines, whole):
        return None
    return engines.choose(whole)


def pass_ns(engines: Engines, whole: Convolution) -> float:
    """Nanoseconds of a pass over the result, which may add a residual."""
    return copy_ns(engines, (2 + whole.residual) * whole.operand_bytes[-1])


def copy_ns(engines: Engines, moved: int) -> float:
    """Nanoseconds of a pass that reads and writes that many bytes."""
    return engines.gpu.plain_ns(moved, 0) + PASS_NS


def add_activation(graph: Any, tensor: Any, activation: Activation | None) -> Any:
    """Add the activation of a tensor to an operation graph; return its result."""
    if activation is None:
        return tensor
    return getattr(graph, FUNCTIONS[activation.name])(input=tensor)
