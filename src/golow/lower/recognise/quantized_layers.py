"""Layers that compute with whole numbers: named, so that a level can compute them as such.

A quantised layer multiplies activations by a scale, rounds and clips them, converts its weight from
int8, and multiplies the sums by a scale for each output. In floating point that is right but not
fast. These passes find the arithmetic by what it is, whoever wrote it: three stages, from the
activations to the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import absorbing, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.quantize import RANGES, Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.lower.operators.reshape import Reshape
from golow.lower.recognise.constant_graph import ConstantGraph

MOST_TERMS = (2**31 - 1) // (255 * 128)
"""The most terms whose sum is an int32, whatever they are."""

QuantizedLayer = QuantizedConvolution | QuantizedLinear


def name_quantized_layers(graph: Graph) -> Graph:
    """Replace the arithmetic of quantised layers with its operators."""
    named = _replaced(graph, _quantize)
    if named is graph:
        return graph
    named = _replaced(named, _layer)
    return eliminate_dead_code(_replaced(named, _with_bias))


Found = tuple[tuple[Node, ...], tuple[int, ...]]
"""Nodes that replace one, and the positions of other nodes that are no longer needed."""


def _replaced(graph: Graph, replace: Callable[[_Graph, int], Found | None]) -> Graph:
    searched, replaced = _Graph(graph), dict[int, tuple[Node, ...]]()
    for position in range(len(graph.nodes)):
        found = replace(searched, position)
        if found is not None:
            nodes, gone = found
            replaced |= {**dict.fromkeys(gone, ()), position: nodes}
    return rewritten(graph, replaced) if replaced else graph


class _Graph(ConstantGraph):
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


def _quantize(graph: _Graph, position: int) -> Found | None:
    """minimum(maximum(round(x * scale), lowest), highest): one node, and its conversion back."""
    node, value = graph.nodes[position], graph.nodes[position].outputs[0]
    upper = _bound(node, "minimum")
    lower = None if upper is None else _bound(graph.made(upper[0]), "maximum")
    if upper is None or lower is None or value is None:
        return None
    dtype = next((name for name, ends in RANGES.items() if ends == (lower[1], upper[1])), "")
    rounded = graph.made(lower[0])
    function = None if rounded is None else Pointwise.of(rounded)
    whole = function is not None and function.function == "round"
    product = graph.made(function.operands[0]) if function is not None and whole else None
    scaled = None if product is None else Binary.of(product)
    if not dtype or scaled is None or not _scales_all(graph, scaled):
        return None
    numbers = msgspec.structs.replace(value, name=f"{value.name}_quantized", dtype=dtype)
    back = Pointwise(function="convert", operands=(Ref(name=numbers.name),), dtype=value.dtype)
    operator = Quantize(x=scaled.a, scale=scaled.b, dtype=dtype)  # type: ignore[arg-type]
    return (written(node, operator, outputs=(numbers,)), written(node, back)), ()


def _bound(node: Node | None, function: str) -> tuple[Ref, float] | None:
    """The value that a node limits, and its limit."""
    found = None if node is None else Pointwise.of(node)
    if found is None or found.function != function or found.dtype != "float32":
        return None
    x, limit = found.operands
    return (x, limit) if isinstance(x, Ref) and not isinstance(limit, Ref) else None


def _scales_all(graph: _Graph, product: Binary) -> bool:
    """True for the product of a float32 value and one constant number."""
    if product.function != "multiply" or product.activation or not isinstance(product.b, Ref):
        return False
    scale = graph.values[product.b.name]
    one = math.prod(scale.shape) == 1 and product.b.name in graph.constant
    return one and graph.values[product.a.name].dtype == scale.dtype == "float32"


def _layer(graph: _Graph, position: int) -> Found | None:
    """A layer of converted whole numbers, times a scale for each output."""
    node = graph.nodes[position]
    product = Binary.of(node)
    if product is None or product.function != "multiply" or product.activation is not None:
        return None
    place = graph.made_by(product.a, Convolution.op(), Linear.op())
    if place is None or graph.only_reader(product.a.name) is None:
        return None
    layer = Convolution.of(graph.nodes[place]) or Linear.of(graph.nodes[place])
    if layer is None or layer.bias or layer.residual or layer.activation:
        return None
    x, weight = graph.converted(layer.x, *RANGES), graph.converted(layer.weight, "int8")
    if x is None or weight is None or weight.name not in graph.constant:
        return None
    outputs, *inner = graph.values[weight.name].shape
    after = len(layer.stride) if isinstance(layer, Convolution) else 0
    scale = graph.vector(product.b, outputs, after)
    if scale is None or math.prod(inner) > MOST_TERMS:
        return None
    operator: QuantizedLayer = QuantizedLinear(x=x, weight=weight, scale=scale)
    if isinstance(layer, Convolution):
        operator = QuantizedConvolution(
            x=x, weight=weight, scale=scale, stride=layer.stride, padding=layer.padding,
            dilation=layer.dilation, groups=layer.groups,
        )  # fmt: skip
    return _joined(graph, place, position, operator)


def _with_bias(graph: _Graph, position: int) -> Found | None:
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
    return _joined(graph, place, position, msgspec.structs.replace(layer, bias=bias))


def _joined(graph: _Graph, place: int, position: int, operator: Operator) -> Found:
    """The operator in place of the node at this position, which takes in the layer at that one."""
    base, last = graph.nodes[place], graph.nodes[position]
    node = written(base, operator, outputs=last.outputs, absorbed=absorbing(base, last))
    return (node,), (place,)
