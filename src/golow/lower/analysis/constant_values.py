"""Loop-invariant values, which an iteration need not compute again: those that depend on weights
alone."""

from __future__ import annotations

from golow.lower.analysis.liveness import last_reads
from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import vocabulary
from golow.lower.ir.rewriting import changes_in_place
from golow.lower.operators.dropout import Dropout

WEIGHTS = ("parameter", "buffer", "constant")
RANDOM = (Dropout.op(),)


def constant_values(graph: Graph) -> frozenset[str]:
    """The values that are the same in every iteration: weights, and what is computed from them
    alone, by name. A buffer that the model changes is none of them; in training nothing is."""
    if graph.mode == "train":
        return frozenset()
    changed = {item.target for item in graph.outputs if item.kind == "buffer"}
    groups, _ = last_reads(graph)
    in_place = {next(node.references(), "") for node in graph.nodes if changes_in_place(node)}
    in_place |= {groups.get(name, name) for name in in_place}
    found = {
        item.value.name
        for item in graph.inputs
        if item.kind in WEIGHTS
        and item.value.name not in in_place
        and not (item.kind == "buffer" and item.target in changed)
    }
    for node in graph.nodes:
        if is_function(node) and found.issuperset(node.references()):
            found |= {value.name for value in node.outputs if value is not None}
    return frozenset(found)


def is_function(node: Node) -> bool:
    """True if the same arguments always give the same values."""
    return node.op in vocabulary() and node.op not in RANDOM
