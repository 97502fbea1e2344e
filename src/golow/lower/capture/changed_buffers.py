"""Buffers that a forward pass changes in place, as state that the graph receives and returns."""

from __future__ import annotations

import msgspec

from golow.lower.aten.aliasing import SharedMemory, overwritten
from golow.lower.ir.graph import Graph, GraphOutput


def return_changed_buffers(graph: Graph) -> Graph:
    """Return what the graph's operations in place leave in buffers as further outputs.

    Such an output has the name of the buffer's own value here;
    `golow.lower.aten.functional.make_functional` gives it that of the new content.
    """
    buffers = {item.value.name: item for item in graph.inputs if item.kind == "buffer"}
    memory = SharedMemory(graph)
    changed: dict[str, None] = {}
    for node in graph.nodes:
        memory.run(node)
        written = overwritten(node)
        if written is not None and (first := memory.first(written)) in buffers:
            changed[first] = None
    outputs = tuple(
        GraphOutput(name=name, kind="buffer", target=buffers[name].target) for name in changed
    )
    return msgspec.structs.replace(graph, outputs=(*graph.outputs, *outputs))
