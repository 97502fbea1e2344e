"""A pass on ATen's calls: writes the masks that layers draw by themselves as dropout of ones.

Layers that drop whole channels or samples (``nn.Dropout2d``, stochastic depth) fill an empty tensor
with draws and divide it by the chance to be kept. Dropout of ones is the same mask, and every level
can draw it, and switch it off.
"""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Symbol
from golow.lower.ir.rewriting import Links, result, rewritten

# Operations that make the empty tensor, and a tensor full of ones.
FILLED = {
    "aten.empty.memory_format": "aten.ones.default",
    "aten.new_empty.default": "aten.new_ones.default",
    "aten.empty_like.default": "aten.ones_like.default",
}
DRAWN = "aten.bernoulli.p"
SCALED = ("aten.div.Tensor", "aten.div.Scalar")


def name_random_masks(graph: Graph) -> Graph:
    """Replace ``empty().bernoulli(kept) / kept`` with ``native_dropout(ones, 1 - kept)``.

    Draws that something else reads stay as they are; the levels that need a graph refuse them.
    """
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, scaled in enumerate(graph.nodes):
        drawn = links.made_by(scaled.arguments[0], DRAWN) if scaled.op in SCALED else None
        empty = None if drawn is None else links.made_by(graph.nodes[drawn].arguments[0], *FILLED)
        if drawn is None or empty is None:
            continue
        chance, values = graph.nodes[drawn].arguments[1], (graph.nodes[drawn], graph.nodes[empty])
        alone = all(links.only_reader(result(node)) is not None for node in values)
        if alone and isinstance(chance, float) and scaled.arguments[1:] == (chance,):
            replaced[empty] = (_ones(graph.nodes[empty]),)
            replaced[drawn] = ()
            replaced[position] = (_dropout(scaled, graph.nodes[empty], 1 - chance),)
    return rewritten(graph, replaced)


def _ones(empty: Node) -> Node:
    keywords = {
        name: item
        for name, item in empty.keywords.items()
        if not (isinstance(item, Symbol) and item.kind == "memory_format")
    }
    return msgspec.structs.replace(empty, op=FILLED[empty.op], keywords=keywords)


def _dropout(scaled: Node, empty: Node, probability: float) -> Node:
    return msgspec.structs.replace(
        scaled,
        op="aten.native_dropout.default",
        arguments=(Ref(name=result(empty)), probability, True),
        keywords={},
        outputs=(*scaled.outputs, None),
        several=True,
    )
