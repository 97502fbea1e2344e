"""A pass for training: the forward part of a captured step, for a framework with separate
gradients."""

from __future__ import annotations

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, GraphOutput

FORWARD = ("loss", "output", "buffer")


def forward_of_training(graph: Graph) -> Graph:
    """Leave out the gradients and what only they need.

    The parameters that have one become outputs themselves: a step returns them changed.
    """
    trained = {item.target for item in graph.outputs if item.kind == "gradient"}
    parameters = tuple(
        GraphOutput(name=item.value.name, kind="parameter", target=item.target)
        for item in graph.inputs
        if item.kind == "parameter" and item.target in trained
    )
    kept = tuple(item for item in graph.outputs if item.kind in FORWARD)
    return eliminate_dead_code(msgspec.structs.replace(graph, outputs=kept + parameters))
