"""Epilogue fission: gives activations back from layers to the functions of elements after them."""

from __future__ import annotations

import msgspec

from golow.lower.fuse.pointwise_fusion import KINDS
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, absorbing, rewritten
from golow.lower.operators.activation import Activate
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.operators.quantized_linear import QuantizedLinear

LAYERS = (Convolution, Linear, QuantizedLinear)
# Activations that the libraries have in the kernel of every layer.
CLIPS = ("relu", "clip")


def release_activations(graph: Graph) -> Graph:
    """Take an activation out of the layer where a function of elements alone reads its result, as
    in SwiGLU: both are then one pass, and the layer's kernel is a plain one. Depthwise convolutions
    and activations that clip keep theirs."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        reader = _function_after(links, node)
        if reader is None:
            continue
        layer, activate = _apart(node)
        replaced[position] = (layer,)
        replaced[reader] = (activate, *replaced.get(reader, (links.nodes[reader],)))
    return rewritten(graph, replaced)


def _function_after(links: Links, node: Node) -> int | None:
    """The position of the only node that reads the layer's result, if it may have the activation
    before it."""
    layer, output = record_of(node), node.outputs[0] if node.outputs else None
    if not isinstance(layer, LAYERS) or output is None or layer.activation is None:
        return None
    if layer.activation.name in CLIPS or (isinstance(layer, Convolution) and layer.groups > 1):
        return None
    reader = links.only_reader(output.name)
    if reader is None or links.nodes[reader].op not in KINDS:
        return None
    result = links.nodes[reader].outputs[0]
    return reader if result is not None and result.shape == output.shape else None


def _apart(node: Node) -> tuple[Node, Node]:
    """The layer without its activation, and the activation, whose result has the old name."""
    layer, output = record_of(node), node.outputs[0]
    assert isinstance(layer, LAYERS) and layer.activation is not None  # noqa: S101
    assert output is not None  # noqa: S101
    before = msgspec.structs.replace(output, name=f"{output.name}.before")
    plain = written(node, msgspec.structs.replace(layer, activation=None), outputs=(before,))
    activate = Activate(x=Ref(name=before.name), activation=layer.activation)
    name = f"{node.name}.activation"
    return plain, written(node, activate, name=name, outputs=(output,), absorbed=absorbing(node))
