"""Weight normalisation, kept whole: what ATen's calls unfold to otherwise takes four launches for a
layer's weight and five for its gradients."""

from __future__ import annotations

from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.ir.spelling import Call
from golow.lower.operators.weight_norm import WeightNorm, WeightNormBackward

FORWARD = "aten._weight_norm_interface.default"
BACKWARD = "aten._weight_norm_interface_backward.default"


def keep_weight_norm(graph: Graph) -> Graph:
    """Write weights whose rows have lengths of their own, and their gradients, as operators of one
    layer each. Norms of other axes are left, to be unfolded."""
    links = Links(graph)
    replaced = {
        position: (written(node, operator),)
        for position, node in enumerate(graph.nodes)
        if (operator := _operator(node, links)) is not None
    }
    return rewritten(graph, replaced)


def _operator(node: Node, links: Links) -> Operator | None:
    if node.op not in (FORWARD, BACKWARD):
        return None
    call = Call(node, links)
    saved = "" if node.op == FORWARD else "saved_"
    v, g = call.value(f"{saved}v"), call.value(f"{saved}g")
    if call.axis("dim", f"{saved}v") != 0 or 0 in v.shape:
        return None
    if (v.dtype, g.dtype) != ("float32", "float32"):
        return None
    given = {"v": (call.ref(f"{saved}v"),), "g": (call.ref(f"{saved}g"),)}
    if node.op == FORWARD:
        return WeightNorm(**given)
    return WeightNormBackward(
        gradients=(call.ref("grad_w"),), norms=(call.ref("saved_norms"),), **given
    )
