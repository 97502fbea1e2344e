"""Parts of the arithmetic of quantised layers that whole numbers and numbers of e4m3 share: a scale
of activations, a scale for each output, a bias."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import absorbing, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.quantize import Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.lower.operators.reshape import Reshape
from golow.lower.recognise.constant_graph import ConstantGraph

Found = tuple[tuple[Node, ...], tuple[int, ...]]
"""Nodes that replace one, and the positions of other nodes that are no longer needed."""


class QuantizedGraph(ConstantGraph):
    """A graph in which layers are searched."""

    def vector(self, reference: object, outputs: int, after: int) -> Ref | None:
        """The constant [outputs] that a layer's result is multiplied by or added to, which
        broadcasts along this many axes after it."""
        if not isinstance(reference, Ref):
            return None
        shape = self.values[reference.name].shape
        if shape != (outputs, *[1] * after) or reference.name not in self.constant:
            return None
        node = self.made(reference) if after else None
        view = None if node is None else Reshape.of(node)
        if not after:
            return reference
        fits = view is not None and self.values[view.x.name].shape == (outputs,)
        return view.x if view is not None and fits else None


Replace = Callable[[QuantizedGraph, int], Found | None]
"""Returns what replaces the node at a position; None if it stays."""


def replaced(graph: Graph, replace: Replace) -> Graph:
    """Replace nodes from the first to the last; the graph itself if all stay."""
    searched, found = QuantizedGraph(graph), dict[int, tuple[Node, ...]]()
    for position in range(len(graph.nodes)):
        made = replace(searched, position)
        if made is not None:
            nodes, gone = made
            found |= {**dict.fromkeys(gone, ()), position: nodes}
    return rewritten(graph, found) if found else graph


def bound(node: Node | None, function: str) -> tuple[Ref, float] | None:
    """The value that a node limits, and its limit. function: "minimum" or "maximum"."""
    found = None if node is None else Pointwise.of(node)
    if found is None or found.function != function or found.dtype != "float32":
        return None
    x, limit = found.operands
    return (x, limit) if isinstance(x, Ref) and not isinstance(limit, Ref) else None


def scaled(graph: QuantizedGraph, reference: Ref) -> Binary | None:
    """The product of a float32 value and one constant number that makes a value."""
    product = graph.binary(reference, "multiply")
    if product is None or not isinstance(product.b, Ref):
        return None
    scale = graph.values[product.b.name]
    one = math.prod(scale.shape) == 1 and product.b.name in graph.constant
    floats = graph.values[product.a.name].dtype == scale.dtype == "float32"
    return product if one and floats else None


def rounding(node: Node, value: Value, product: Binary, dtype: str) -> tuple[Node, ...]:
    """Nodes that round the product and convert it back. node: the one that made the value."""
    numbers = msgspec.structs.replace(value, name=f"{value.name}_quantized", dtype=dtype)
    back = Pointwise(function="convert", operands=(Ref(name=numbers.name),), dtype=value.dtype)
    operator = Quantize(x=product.a, scale=product.b, dtype=dtype)  # type: ignore[arg-type]
    return written(node, operator, outputs=(numbers,)), written(node, back)


def with_bias(graph: QuantizedGraph, position: int) -> Found | None:
    """The sum of a named layer and a number for each output."""
    node = graph.nodes[position]
    add = Binary.of(node)
    if add is None or add.function != "add" or add.activation is not None:
        return None
    place = graph.made_by(add.a, QuantizedConvolution.op(), QuantizedLinear.op())
    if place is None or graph.only_reader(add.a.name) is None:
        return None
    maker = graph.nodes[place]
    layer = QuantizedConvolution.of(maker) or QuantizedLinear.of(maker)
    if layer is None or layer.bias is not None:
        return None
    outputs = graph.values[layer.scale.name].shape[0]
    after = len(layer.stride) if isinstance(layer, QuantizedConvolution) else 0
    bias = graph.vector(add.b, outputs, after)
    if bias is None:
        return None
    return joined(graph, place, position, msgspec.structs.replace(layer, bias=bias))


def joined(graph: QuantizedGraph, place: int, position: int, operator: Operator) -> Found:
    """The operator in place of the node at this position, which takes in the layer at that one."""
    base, last = graph.nodes[place], graph.nodes[position]
    node = written(base, operator, outputs=last.outputs, absorbed=absorbing(base, last))
    return (node,), (place,)
