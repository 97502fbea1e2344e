"""Loop unrolling of recurrent layers: which of them oneDNN's primitives compute, and which a loop
does."""

from __future__ import annotations

from golow.lower.ir.graph import Graph
from golow.lower.recognise.recurrences import name_recurrences, unfold_recurrences


def keep_faster_recurrences(graph: Graph) -> Graph:
    """Make a layer in one direction one operator where the primitive is faster than the loop."""
    named = name_recurrences(graph)
    return named if graph.mode == "train" else unfold_recurrences(named)
