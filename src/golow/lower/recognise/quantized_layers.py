"""Layers that compute with whole numbers: named, so that a level can compute them as such.

A quantised layer multiplies activations by a scale, rounds and clips them, converts its weight from
int8, and multiplies the sums by a scale for each output. In floating point that is right but not
fast. These passes find the arithmetic by what it is, whoever wrote it: three stages, from the
activations to the bias.
"""

from __future__ import annotations

import math

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph
from golow.lower.operators.binary import Binary
from golow.lower.operators.convolution import Convolution
from golow.lower.operators.linear import Linear
from golow.lower.operators.quantize import RANGES
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.lower.recognise.quantized_arithmetic import (
    Found,
    QuantizedGraph,
    Replace,
    bound,
    joined,
    replaced,
    rounding,
    scaled,
    with_bias,
)

MOST_TERMS = (2**31 - 1) // (255 * 128)
"""The most terms whose sum is an int32, whatever they are."""
WHOLE = ("int8", "uint8")

QuantizedLayer = QuantizedConvolution | QuantizedLinear


def name_quantized_layers(graph: Graph) -> Graph:
    """Replace the arithmetic of quantised layers with its operators."""
    return _named(graph, _layer)


def name_quantized_linear_layers(graph: Graph) -> Graph:
    """Replace that of linear layers alone."""
    return _named(graph, _linear)


def _named(graph: Graph, layer: Replace) -> Graph:
    named = replaced(graph, _quantize)
    if named is graph:
        return graph
    return eliminate_dead_code(replaced(replaced(named, layer), with_bias))


def _quantize(graph: QuantizedGraph, position: int) -> Found | None:
    """minimum(maximum(round(x * scale), lowest), highest): one node, and its conversion back."""
    node, value = graph.nodes[position], graph.nodes[position].outputs[0]
    upper = bound(node, "minimum")
    lower = None if upper is None else bound(graph.made(upper[0]), "maximum")
    if upper is None or lower is None or value is None:
        return None
    dtype = next((name for name in WHOLE if RANGES[name] == (lower[1], upper[1])), "")
    whole = graph.pointwise(lower[0], "round")
    product = None if whole is None else scaled(graph, whole)
    return (rounding(node, value, product, dtype), ()) if dtype and product is not None else None


def _linear(graph: QuantizedGraph, position: int) -> Found | None:
    """A linear layer of converted whole numbers, times a scale for each output."""
    product = Binary.of(graph.nodes[position])
    linear = product is not None and graph.made_by(product.a, Linear.op()) is not None
    return _layer(graph, position) if linear else None


def _layer(graph: QuantizedGraph, position: int) -> Found | None:
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
    x, weight = graph.converted(layer.x, *WHOLE), graph.converted(layer.weight, "int8")
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
    return joined(graph, place, position, operator)
