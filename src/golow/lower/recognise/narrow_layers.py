"""Linear layers whose weights alone are whole numbers: named where a level computes them sooner
from those than from float32.

A few rows are multiplied by a large weight at the speed of memory, so that a quarter or an eighth
of the bytes is a quarter or an eighth of the time. The arithmetic that makes float32 of the whole
numbers is found by what it is; where there are many rows it stays, and is done once.
"""

from __future__ import annotations

import math

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import rewritten
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.linear import Linear
from golow.lower.operators.narrow_linear import NarrowLinear
from golow.lower.operators.reshape import Reshape
from golow.lower.recognise.constant_graph import ConstantGraph

MOST_ROWS = 8


def name_narrow_layers(graph: Graph) -> Graph:
    """Replace the arithmetic of such layers with few rows by its operator."""
    searched, replaced = ConstantGraph(graph), dict[int, tuple[Node, ...]]()
    for position, node in enumerate(graph.nodes):
        layer = Linear.of(node)
        weight = None if layer is None else _narrow(searched, layer.weight)
        if layer is None or weight is None or searched.values[layer.x.name].dtype != "float32":
            continue
        if math.prod(searched.values[layer.x.name].shape[:-1]) <= MOST_ROWS:
            narrow = NarrowLinear(
                x=layer.x, weight=weight[0], scale=weight[1], bias=layer.bias,
                residual=layer.residual, activation=layer.activation,
            )  # fmt: skip
            replaced[position] = (written(node, narrow),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _narrow(graph: ConstantGraph, weight: Ref) -> tuple[Ref, Ref] | None:
    """The whole numbers and the scales whose product is this weight."""
    grouped = Reshape.of(node) if (node := graph.made(weight)) is not None else None
    product = graph.binary(weight if grouped is None else grouped.x, "multiply")
    if product is None or not isinstance(product.b, Ref):
        return None
    plain = grouped is None
    numbers = graph.converted(product.a, "int8") if plain else _unpacked(graph, product.a)
    if numbers is None or not {numbers.name, product.b.name} <= set(graph.constant):
        return None
    shape = (*graph.values[numbers.name].shape[:-1], 1)
    return (numbers, product.b) if graph.values[product.b.name].shape == shape else None


def _unpacked(graph: ConstantGraph, reference: Ref) -> Ref | None:
    """The bytes from which these numbers are unpacked: their low four bits, then their high ones,
    less 8."""
    less = graph.binary(reference, "subtract", 8)
    node = None if less is None else graph.made(less.a)
    both = None if node is None else Concatenate.of(node)
    if both is None or len(both.parts) != 2 or both.axis != 2:
        return None
    low, high = both.parts
    whole = graph.pointwise(high, "floor")
    shifted = None if whole is None else graph.binary(whole, "multiply", 0.0625)
    rest = graph.binary(low, "subtract")
    taken = graph.binary(rest.b, "multiply", 16) if rest and isinstance(rest.b, Ref) else None
    if shifted is None or rest is None or taken is None or taken.a != high or shifted.a != rest.a:
        return None
    return graph.converted(shifted.a, "uint8")
