"""Conversion of graphs of PT2E, PyTorch's quantisation of exported programs, to golow's layers.

Such a graph has calls that quantise a tensor to integers and calls that dequantise it
(``quantized_decomposed``), around layers that compute in floating point. A convolution or linear
layer whose two inputs are dequantised becomes golow's quantised layer with the same numbers and
scales. A pair of calls that belongs to no such layer becomes a module that rounds.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node

from golow.records.errors import GolowError
from golow.records.quantization import QuantizedLayer
from golow.workload.program import accept_modes, register_calls_of_pt2e
from golow.workload.quantization.quantized_layers import Rounding
from golow.workload.quantization.replacing import found_form, share_scales

register_calls_of_pt2e()
CALLS = torch.ops.quantized_decomposed
ROUND, TAKE_BACK = CALLS.quantize_per_tensor.default, CALLS.dequantize_per_tensor.default
TAKE_BACK_CHANNELS = CALLS.dequantize_per_channel.default
LAYERS = (torch.ops.aten.conv2d.default, torch.ops.aten.linear.default)


class RoundedValues(Rounding):
    """Rounds values to integer multiples of a scale."""

    output_scale: Tensor

    def __init__(self, rule: QuantizedLayer, scale: float) -> None:
        super().__init__(rule)
        self.register_buffer("input_scale", torch.tensor(1 / scale))
        self.register_buffer("output_scale", torch.tensor(scale))

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        return self.activations(x) * self.output_scale


class Pair(NamedTuple):
    """A tensor that is quantised and dequantised. rounded: the call that quantises it."""

    source: Node
    rounded: Node
    scale: float
    limits: tuple[int, int]

    def rule(self, path: str) -> QuantizedLayer:
        """Return the rule of the layer that reads it."""
        return QuantizedLayer(
            path=path, rule="int8", signed=self.limits[0] < 0, limits=_unusual(self.limits)
        )


def to_golows_layers(module: GraphModule) -> None:
    """Change the graph in place. Raises `GolowError` for PT2E calls that golow cannot express."""
    first: dict[Node, str] = {}
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in LAYERS:
            _replace_layer(module, node, first)
    for node in list(module.graph.nodes):
        if (pair := _pair(node)) is not None and node.users:
            path = f"rounded_{node.name}"
            _put(module, node, path, RoundedValues(pair.rule(path), pair.scale), pair.source)
    module.graph.eliminate_dead_code()
    _require_none_left(module)
    _forget_unread(module)
    module.recompile()
    accept_modes(module)
    module.eval()


def _require_none_left(module: GraphModule) -> None:
    for node in module.graph.nodes:
        if getattr(node.target, "namespace", "") == CALLS.name:
            readers = ", ".join(sorted({str(reader.target) for reader in node.users}))
            raise GolowError(
                f"the graph has {node.target} for {readers}, which golow does not support there",
                "golow reads static PT2E with folded weights: symmetric int8, for conv2d and "
                "linear.",
            )


def _replace_layer(module: GraphModule, node: Node, first: dict[Node, str]) -> None:
    """Replace a layer whose weight is quantised. first: the first layer that reads the result of
    each rounding call."""
    given: tuple[Any, ...] = (*node.args, None)
    x, weight, bias, *geometry = given[: max(3, len(node.args))]
    found, added = _weight(module, weight), _tensor(module, bias)
    if found is None or (added is None and bias is not None):
        return
    numbers, scales = found
    path, pair = f"quantized_{node.name}", _pair(x)
    rule = QuantizedLayer(path=path, rule="int8-weights")
    if pair is not None:
        like = first.setdefault(pair.rounded, path)
        rule = msgspec.structs.replace(pair.rule(path), like="" if like == path else like)
        scales = scales * pair.scale
    layer = found_form(_original(numbers, geometry), rule)
    layer.weight, layer.output_scale = numbers, scales.float()
    layer.bias = None if added is None else nn.Parameter(added, requires_grad=False)
    if pair is not None:
        layer.input_scale = torch.tensor(1 / pair.scale)
    _put(module, node, path, layer, x if pair is None else pair.source)
    share_scales(module, [rule])


def _original(numbers: Tensor, geometry: list[Any]) -> nn.Conv2d | nn.Linear:
    """Return a layer with this shape and these settings; its weights do not matter."""
    outputs, inputs, *kernel = numbers.shape
    if not kernel:
        return nn.Linear(inputs, outputs, bias=False)
    given: list[Any] = [*geometry, *(1, 0, 1, 1)[len(geometry) :]]
    stride, padding, dilation, groups = given
    height, width = kernel
    return nn.Conv2d(
        inputs * groups, outputs, (height, width), _two(stride), _two(padding), _two(dilation),
        groups, bias=False,
    )  # fmt: skip


def _two(given: Any) -> tuple[int, int]:
    numbers = [given] if isinstance(given, int) else list(given)
    return numbers[0], numbers[-1]


def _pair(node: object) -> Pair | None:
    """Return the pair of calls that ends at a node."""
    if not isinstance(node, Node) or node.target is not TAKE_BACK:
        return None
    rounded, *settings = tuple[Any, ...](node.args)
    if not isinstance(rounded, Node) or rounded.target is not ROUND:
        return None
    source, *before = rounded.args
    scale, zero, lowest, highest, _ = settings
    if settings != before or not isinstance(source, Node):
        return None
    return Pair(source, rounded, scale, (lowest - zero, highest - zero))


def _weight(module: GraphModule, node: object) -> tuple[Tensor, Tensor] | None:
    """Return the integers of a weight and its scale for each output, in float64; None for a weight
    that is not quantised, or not in golow's way."""
    if not isinstance(node, Node) or node.target not in (TAKE_BACK, TAKE_BACK_CHANNELS):
        return None
    numbers = _tensor(module, node.args[0])
    if numbers is None or numbers.dtype != torch.int8:
        return None
    outputs = len(numbers)
    if node.target is TAKE_BACK:
        scale, zero = tuple[Any, ...](node.args)[1:3]
        return (numbers, torch.full((outputs,), scale, dtype=torch.float64)) if not zero else None
    scales, zeros = (_tensor(module, item) for item in node.args[1:3])
    if scales is None or node.args[3] != 0 or (zeros is not None and bool(zeros.any())):
        return None
    return numbers, scales.double()


def _tensor(module: GraphModule, node: object) -> Tensor | None:
    """Return the tensor that a node gets from the module."""
    if not isinstance(node, Node) or node.op != "get_attr":
        return None
    found = operator.attrgetter(str(node.target))(module)
    return found.detach() if isinstance(found, Tensor) else None


def _put(module: GraphModule, node: Node, path: str, layer: nn.Module, source: Node) -> None:
    """Replace the node with a layer that is applied to this source."""
    module.add_submodule(path, layer.eval())
    with module.graph.inserting_before(node):
        made = module.graph.call_module(path, (source,))
    made.meta = node.meta
    node.replace_all_uses_with(made)
    module.graph.erase_node(node)


def _unusual(limits: tuple[int, int]) -> tuple[int, int] | None:
    """Return the limits, unless they are those of golow's rule."""
    return None if limits in ((-128, 127), (0, 255)) else limits


def _forget_unread(module: GraphModule) -> None:
    """Delete tensors and layers that the graph no longer reads."""
    module.delete_all_unused_submodules()
    read = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    for place, holder in list(module.named_modules()):
        if isinstance(holder, Rounding):
            continue
        for name in [*holder._parameters, *holder._buffers]:
            if f"{place}.{name}".lstrip(".") not in read:
                delattr(holder, name)
