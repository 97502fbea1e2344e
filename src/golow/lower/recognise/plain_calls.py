"""Calls that capture keeps whole, as calls of PyTorch for levels without a kernel for them."""

from __future__ import annotations

from golow.lower.aten.decomposition import unfold
from golow.lower.decompositions.attention import DROPPED, DROPPED_BACKWARD
from golow.lower.ir.graph import Graph
from golow.lower.recognise.recurrences import unfold_linear_recurrences, unfold_recurrences

DROPPING = (DROPPED, DROPPED_BACKWARD)


def to_plain_calls(graph: Graph) -> Graph:
    """Turn recurrent layers and linear recurrences into loops, and attention with dropout into
    products, softmax and dropout. A graph without them is returned as it is."""
    graph = unfold_linear_recurrences(unfold_recurrences(graph))
    if all(node.op not in DROPPING for node in graph.nodes):
        return graph
    return unfold(graph, lambda node, _: node.op in DROPPING)
