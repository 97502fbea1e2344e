"""Weights that a module has in bf16, in a graph of float32: layers read them as they are.

A token of a text is computed at the speed at which memory gives the weights, so that half of the
bytes is half of the time.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from golow.lower.ir.graph import Graph, GraphInput, Node, Pass, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.operators.linear import Linear
from golow.lower.operators.narrow_linear import NarrowLinear
from golow.lower.operators.narrow_take import NarrowTake
from golow.lower.operators.take import Take

BF16 = "bfloat16"


def keeping_bf16(names: Collection[str]) -> Pass:
    """Return the pass for the parameters of these names."""

    def keep_bf16(graph: Graph) -> Graph:
        """Let linear layers and lookups in tables read those weights as bf16 that nothing else
        reads."""
        links, inputs = Links(graph), list[GraphInput]()
        replaced: dict[int, tuple[Node, ...]] = {}
        for item in graph.inputs:
            if item.kind == "parameter" and item.target in names:
                narrow = _narrow_readers(links, item.value.name)
                if narrow is not None:
                    replaced |= narrow
                    value = msgspec.structs.replace(item.value, dtype=BF16)
                    item = msgspec.structs.replace(item, value=value)
            inputs.append(item)
        return msgspec.structs.replace(rewritten(graph, replaced), inputs=tuple(inputs))

    return keep_bf16


def _narrow_readers(links: Links, name: str) -> dict[int, tuple[Node, ...]] | None:
    """The readers of a weight as operators that take bf16, by their positions; None if one of them
    needs float32."""
    found: dict[int, tuple[Node, ...]] = {}
    for position in links.readers[name]:
        narrow = _narrow(links.nodes[position], name)
        if narrow is None:
            return None
        found[position] = (narrow,)
    return None if name in links.returned else found


def _narrow(node: Node, name: str) -> Node | None:
    if list(node.references()).count(name) > 1:
        return None
    layer, rows = Linear.of(node), Take.of(node)
    if layer is not None and layer.weight == Ref(name=name):
        return written(node, NarrowLinear(**msgspec.structs.asdict(layer)))
    if rows is not None and rows.x == Ref(name=name) and rows.axis == 0:
        return written(node, NarrowTake(x=rows.x, index=rows.index))
    return None
