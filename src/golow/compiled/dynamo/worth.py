"""Which graphs of Dynamo the backend takes at all. All others run as Dynamo recorded them.

A plan is worth its build and its call where something heavy runs in it: a convolution, a product, a
recurrence or attention. Functions of elements alone are what PyTorch's own loops compute as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from golow.compiled.dynamo.device import device_of

HEAVY = frozenset(
    "linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "matmul __matmul__ mm bmm addmm addbmm baddbmm mv addmv einsum tensordot chain_matmul "
    "multi_dot scaled_dot_product_attention multi_head_attention_forward convolution "
    "_convolution lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split()
)
"""Names of functions and methods in a graph of Dynamo."""
PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)


def why_left(traced: fx.GraphModule, inputs: Sequence[Any]) -> str:
    """The reason for which the backend leaves a graph to PyTorch; empty if it takes it."""
    nodes = [node for module in _modules(traced) for node in module.graph.nodes]
    if not any(_name(node) in HEAVY for node in nodes):
        return "no convolution, product, recurrence or attention"
    device = device_of(inputs)
    if device.type not in ("cpu", "cuda"):
        return f"an input is on {device.type}: plans run on the CPU and on NVIDIA GPUs"
    if torch.is_autocast_enabled(device.type) or any(map(_turns_autocast_on, nodes)):
        return "autocast: plans of this backend compute in float32"
    for item in inputs:
        read = isinstance(item, Tensor) and not _is_number(item)
        if read and (why := why_not_read(item, device)):
            return why
    return ""


def _is_number(tensor: Tensor) -> bool:
    """True if it stands for a float of Python, which Dynamo makes a tensor of with
    ``dynamic=True``; AOTAutograd takes it out of the graph again."""
    return tensor.dtype is torch.float64 and tensor.dim() == 0


def why_not_read(tensor: Tensor, device: torch.device) -> str:
    """The reason for which a plan on this device cannot read a tensor; empty if it can."""
    if not is_ordinary(tensor):
        return f"an input is {_kind(tensor)}"
    if tensor.device != device:
        return f"inputs are on {device} and on {tensor.device}"
    if tensor.layout is not torch.strided:
        return f"an input is {str(tensor.layout).removeprefix('torch.')}"
    floating = tensor.is_floating_point() or tensor.is_complex()
    if floating and tensor.dtype is not torch.float32:
        return f"an input is {str(tensor.dtype).removeprefix('torch.')}, not float32"
    return ""


def is_ordinary(tensor: Tensor) -> bool:
    """True if it is a tensor of PyTorch's own type, or a fake one that stands for it."""
    return type(tensor) in PLAIN or isinstance(tensor, torch._subclasses.FakeTensor)


def _kind(tensor: Tensor) -> str:
    return f"a tensor subclass, {type(tensor).__name__}"


def _modules(traced: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """Yield the graph and those of regions, such as checkpoints."""
    return (module for module in traced.modules() if isinstance(module, fx.GraphModule))


def _name(node: fx.Node) -> str:
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", "")).partition(".")[0]
    return str(node.target) if node.op == "call_method" else ""


def _turns_autocast_on(node: fx.Node) -> bool:
    """True if it is ``_enter_autocast(device, dtype, enabled, ...)``."""
    if _name(node) != "_enter_autocast":
        return False
    enabled = node.args[2] if len(node.args) > 2 else node.kwargs.get("enabled", True)
    return bool(enabled)
