"""The last reads of a graph's values, and which values are the new content of an input. Both decide
whether a step may overwrite its argument."""

from __future__ import annotations

from golow.lower.graph import Graph, Ref
from golow.lower.operator import vocabulary


def state_outputs(graph: Graph) -> dict[str, str]:
    """Maps each value that is the new content of an input to the name of that input."""
    inputs = {(item.kind, item.target): item.value.name for item in graph.inputs}
    return {
        item.name: inputs[(item.kind, item.target)]  # type: ignore[index]
        for item in graph.outputs
        if (item.kind, item.target) in inputs
    }


def last_reads(graph: Graph) -> tuple[dict[str, str], dict[str, int]]:
    """Maps each view to the value whose memory it shares, and each such value to the last position
    that reads it or one of its views. Outputs, the loss and new buffers are read after the last
    node."""
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
        if item.kind in ("output", "loss", "buffer"):
            last[groups.get(item.name, item.name)] = len(graph.nodes)
    return groups, last
