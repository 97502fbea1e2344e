"""Modules quantised by other tools, in golow's form: torchao weights, or a PT2E graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from torch import nn
from torch.fx import GraphModule

from golow.workload.quantization.foreign.foreign_layer import ForeignLayer
from golow.workload.quantization.foreign.torchao_tensors import has_torchaos, torchao_layers
from golow.workload.quantization.replacing import found_form, replace_layer


def adopted(module: nn.Module) -> nn.Module:
    """Return the module, or a copy with golow's layers if another tool has quantised it. Raises
    `GolowError` for layers that none of golow's rules expresses."""
    if not has_torchaos(module) and not any(_graphs_of_pt2e(module)):
        return module
    own = copy.deepcopy(module)
    for layer in list(torchao_layers(own)):
        original = own.get_submodule(layer.rule.path)
        replace_layer(own, original, _filled(original, layer))
    for graph in list(_graphs_of_pt2e(own)):
        from golow.workload.quantization.foreign.pt2e import to_golows_layers

        to_golows_layers(graph)
    return own


def _graphs_of_pt2e(module: nn.Module) -> Iterator[GraphModule]:
    for part in module.modules():
        if isinstance(part, GraphModule) and any(
            getattr(node.target, "namespace", "") == "quantized_decomposed"
            for node in part.graph.nodes
        ):
            yield part


def _filled(original: nn.Module, layer: ForeignLayer) -> nn.Module:
    """Return golow's layer with the numbers filled in."""
    outputs, inputs = original.get_parameter("weight").shape
    made = found_form(nn.Linear(inputs, outputs, bias=False), layer.rule)
    made.bias = original._parameters["bias"]
    for name, tensor in layer.tensors().items():
        setattr(made, name, tensor)
    return made
