"""When the values of a graph are read for the last time, and which of them are the new content of
an input: what decides whether a step may write over its argument."""

from __future__ import annotations

from golow.lower.graph import Graph, Ref
from golow.lower.operator import vocabulary


def state_outputs(graph: Graph) -> dict[str, str]:
    """Values that are the new content of an input, with that input's name."""
    inputs = {(item.kind, item.target): item.value.name for item in graph.inputs}
    return {
        item.name: inputs[(item.kind, item.target)]  # type: ignore[index]
        for item in graph.outputs
        if (item.kind, item.target) in inputs
    }


def last_reads(graph: Graph) -> tuple[dict[str, str], dict[str, int]]:
    """For each value the one whose memory it looks at, and for those the last position that
    reads any of them. What leaves the graph at its end is read after the last node."""
    groups: dict[str, str] = {}
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        for name in node.references():
            last[groups.get(name, name)] = position
        kind, source = vocabulary().get(node.op), node.keywords.get("x")
        if kind is not None and kind.is_view and isinstance(source, Ref):
            for value in node.outputs:
                if value is not None:
                    groups[value.name] = groups.get(source.name, source.name)
    for item in graph.outputs:
        if item.kind in ("output", "loss"):
            last[groups.get(item.name, item.name)] = len(graph.nodes)
    return groups, last
