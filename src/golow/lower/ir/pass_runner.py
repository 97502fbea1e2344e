"""Passes: small functions from graph to graph.

`apply` runs them in order. After each it verifies the graph, unless the pass found nothing to
change, and adds the pass's name, its time and the number of nodes left to the graph's history.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec

from golow.lower.ir.graph import Graph, Pass, PassRecord
from golow.lower.ir.verify import verify


def stages(graph: Graph, passes: Sequence[Pass]) -> Iterator[Graph]:
    """The verified graph, and then the verified result of each pass."""
    yield verify(graph)
    verified = content(graph)
    for run in passes:
        start = time.perf_counter()
        graph = run(graph)
        seconds = time.perf_counter() - start
        done = PassRecord(name=run.__name__, seconds=seconds, nodes=len(graph.nodes))
        graph = msgspec.structs.replace(graph, history=(*graph.history, done))
        if (made := content(graph)) != verified:
            verify(graph)
            verified = made
        yield graph


def content(graph: Graph) -> bytes:
    """All of the graph but its history. Bytes, since 1, 1.0 and True are equal and mean different
    things to an operation."""
    parts = (graph.inputs, graph.nodes, graph.outputs)
    return msgspec.msgpack.encode(parts, enc_hook=str)  # a name may be of a subclass of str


def apply(graph: Graph, passes: Sequence[Pass]) -> Graph:
    """The graph after all passes: the last of `stages`."""
    for stage in stages(graph, passes):
        graph = stage
    return graph
