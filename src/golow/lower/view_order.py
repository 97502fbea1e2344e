"""The pass that computes activations before the views of what they read, beside the layer that
makes it."""

from __future__ import annotations

import msgspec

from golow.lower.graph import Graph, Node, Ref
from golow.lower.operator import record_of, written
from golow.lower.operators.activation import Activate
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.rewriting import Links, Names, rewritten


def activate_before_views(graph: Graph) -> Graph:
    """Exchange an activation with the view of which it is the only reader, until none is left."""
    while (changed := _once(graph)) is not graph:
        graph = changed
    return graph


def _once(graph: Graph) -> Graph:
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        activate = Activate.of(node)
        maker = links.maker.get(activate.x.name) if activate is not None else None
        if activate is None or maker is None or maker in replaced:
            continue
        view = record_of(links.nodes[maker])
        alone = len(links.readers[activate.x.name]) == 1 and activate.x.name not in links.returned
        if not isinstance(view, Reshape | Permute) or not alone or position in replaced:
            continue
        before = links.values[view.x.name]
        value = msgspec.structs.replace(before, name=names.free(f"{node.name}.before"))
        first = written(
            node, msgspec.structs.replace(activate, x=view.x), name=value.name, outputs=(value,)
        )
        seen = msgspec.structs.replace(view, x=Ref(name=value.name))
        replaced[position] = (first, written(links.nodes[maker], seen, outputs=node.outputs))
        replaced[maker] = ()
    return rewritten(graph, replaced) if replaced else graph
