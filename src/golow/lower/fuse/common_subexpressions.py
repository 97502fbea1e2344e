"""Common subexpression elimination: computes once what several nodes compute, such as the masks of
each layer of a transformer, indices, positions and fills."""

from __future__ import annotations

import msgspec

from golow.lower.analysis.constant_values import is_function
from golow.lower.ir.graph import Graph, Node, Value
from golow.lower.ir.rewriting import absorbing, with_names

Key = tuple[str, ...]


def merge_equal_nodes(graph: Graph) -> Graph:
    """Remove nodes that compute what an earlier one of the same phase does. A value of the forward
    pass does not replace one of the backward pass: it would have to be kept until then. Outputs of
    the graph stay what they are, each with a separate node."""
    returned = {item.name for item in graph.outputs}
    first: dict[Key, int] = {}
    renamed: dict[str, str] = {}
    nodes: list[Node] = []
    for original in graph.nodes:
        node = with_names(original, renamed)
        made = {value.name for value in node.outputs if value is not None}
        if not is_function(node):
            nodes.append(node)
            continue
        position = first.setdefault(_key(node), len(nodes))
        if position == len(nodes) or made & returned:
            nodes.append(node)
            continue
        nodes[position], names = _merged(nodes[position], node)
        renamed |= names
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _key(node: Node) -> Key:
    """Key of the node's computation. As text, in which 1, 1.0, True and -0.0 differ."""
    keywords = (f"{name}={value!r}" for name, value in sorted(node.keywords.items()))
    return node.op, node.phase, repr(node.arguments), *keywords


def _merged(one: Node, other: Node) -> tuple[Node, dict[str, str]]:
    """The first node with the values of both, and the names that the other's values get."""
    outputs: list[Value | None] = []
    names: dict[str, str] = {}
    for kept, again in zip(one.outputs, other.outputs, strict=True):
        outputs.append(kept or again)
        if kept is not None and again is not None:
            names[again.name] = kept.name
    absorbed = absorbing(one, other)
    return msgspec.structs.replace(one, outputs=tuple(outputs), absorbed=absorbed), names
