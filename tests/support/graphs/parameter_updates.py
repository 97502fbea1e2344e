"""What holds for every update of a parameter in a lowered graph."""

from __future__ import annotations

from golow.lower.ir.graph import Graph
from golow.lower.operators.expand import Expand
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.sgd_update import SgdUpdate


def assert_updates_follow_the_last_read(graph: Graph) -> None:
    """A level writes the new parameter over the old: no later node may read that or a view."""
    for position, node in enumerate(graph.nodes):
        update = SgdUpdate.of(node)
        if update is None:
            continue
        looking = {update.parameter.name}
        for index, other in enumerate(graph.nodes):
            if looking & set(other.references()):
                assert index <= position, (node.name, other.name)
                if other.op in (Permute.op(), Reshape.op(), Expand.op()):
                    looking |= {value.name for value in other.outputs}
