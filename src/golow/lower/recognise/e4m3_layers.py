"""Linear layers that compute with numbers of e4m3: named, so that a level can compute them as such.

A quantised layer multiplies activations by a scale, clips them, and rounds them to a multiple of
the distance of neighbouring numbers, which follows from their logarithm. Its weight comes from a
table of the type's numbers, by their bits. As in `quantized_layers`, the arithmetic is found by
what it is.
"""

from __future__ import annotations

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Ref
from golow.lower.operators.binary import Binary
from golow.lower.operators.index import Index
from golow.lower.operators.linear import Linear
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.quantize import E4M3, RANGES
from golow.lower.operators.quantized_linear import QuantizedLinear
from golow.lower.operators.reshape import Reshape
from golow.lower.recognise.quantized_arithmetic import (
    Found,
    QuantizedGraph,
    bound,
    joined,
    replaced,
    rounding,
    scaled,
    with_bias,
)

MANTISSA_BITS = 3
SMALLEST_NORMAL = 2.0**-6
"""Numbers below it are as far apart as those from it to its double."""


def name_e4m3_layers(graph: Graph) -> Graph:
    """Replace the arithmetic of linear layers of e4m3 with its operators."""
    tables = {item.value.name for item in graph.inputs if item.lists == E4M3}
    named = replaced(graph, _quantize) if tables else graph
    if named is graph:
        return graph

    def layer(searched: QuantizedGraph, position: int) -> Found | None:
        return _layer(searched, position, tables)

    return eliminate_dead_code(replaced(replaced(named, layer), with_bias))


def _quantize(graph: QuantizedGraph, position: int) -> Found | None:
    """round(clipped / unit) * unit: one node, and its conversion back."""
    node, value = graph.nodes[position], graph.nodes[position].outputs[0]
    product = Binary.of(node)
    if product is None or product.function != "multiply" or product.activation or value is None:
        return None
    whole = graph.pointwise(product.a, "round")
    quotient = None if whole is None else graph.binary(whole, "divide")
    if quotient is None or quotient.b != product.b or not isinstance(product.b, Ref):
        return None
    if not _is_unit(graph, product.b, quotient.a):
        return None
    upper = bound(graph.made(quotient.a), "minimum")
    lower = None if upper is None else bound(graph.made(upper[0]), "maximum")
    if upper is None or lower is None or (lower[1], upper[1]) != RANGES[E4M3]:
        return None
    source = scaled(graph, lower[0])
    return None if source is None else (rounding(node, value, source, E4M3), ())


def _is_unit(graph: QuantizedGraph, unit: Ref, clipped: Ref) -> bool:
    """True for the distance of neighbouring numbers: two to the power of the exponent, less the
    mantissa's bits."""
    node = graph.made(unit)
    power = None if node is None else Pointwise.of(node)
    if power is None or power.function != "power" or power.operands[0] != 2:
        return False
    exponent = power.operands[1]
    less = graph.binary(exponent, "subtract", MANTISSA_BITS) if isinstance(exponent, Ref) else None
    floor = None if less is None else graph.pointwise(less.a, "floor")
    logarithm = None if floor is None else graph.pointwise(floor, "logarithm_2")
    least = None if logarithm is None else bound(graph.made(logarithm), "maximum")
    if least is None or least[1] != SMALLEST_NORMAL:
        return False
    return graph.pointwise(least[0], "absolute") == clipped


def _layer(graph: QuantizedGraph, position: int, tables: set[str]) -> Found | None:
    """A linear layer of converted numbers, times a scale for each output."""
    product = Binary.of(graph.nodes[position])
    if product is None or product.function != "multiply" or product.activation is not None:
        return None
    place = graph.made_by(product.a, Linear.op())
    if place is None or graph.only_reader(product.a.name) is None:
        return None
    layer = Linear.of(graph.nodes[place])
    if layer is None or layer.bias or layer.residual or layer.activation:
        return None
    x, weight = graph.converted(layer.x, E4M3), _bits(graph, layer.weight, tables)
    if x is None or weight is None:
        return None
    scale = _scale(graph, product.b, graph.values[weight.name].shape[0])
    if scale is None:
        return None
    operator = QuantizedLinear(x=x, weight=weight, scale=scale)
    return joined(graph, place, position, operator)


def _bits(graph: QuantizedGraph, weight: Ref, tables: set[str]) -> Ref | None:
    """The constant uint8 [K, 1, C] whose numbers in a table this weight has."""
    node = graph.made(weight)
    view = None if node is None else Reshape.of(node)
    taken = None if view is None else graph.made(view.x)
    index = None if taken is None else Index.of(taken)
    if index is None or index.x.name not in tables or len(index.indices) != 1:
        return None
    places = index.indices[0]
    bits = None if places is None else graph.converted(places, "uint8")
    if bits is None or bits.name not in graph.constant:
        return None
    shape = graph.values[bits.name].shape
    return bits if len(shape) == 3 and shape[1] == 1 else None


def _scale(graph: QuantizedGraph, reference: object, outputs: int) -> Ref | None:
    """The constant [K, 1, 1] or [K] that multiplies the sums of each output."""
    found = graph.vector(reference, outputs, 0)
    node = None if found is None else graph.made(found)
    view = None if node is None else Reshape.of(node)
    return found if view is None else view.x
