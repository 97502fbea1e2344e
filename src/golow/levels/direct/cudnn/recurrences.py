"""Loop unrolling of recurrent networks: which of them cuDNN computes as a whole, and which as a
loop."""

from __future__ import annotations

from golow.levels.direct.cudnn.stacking import join_layers
from golow.lower.decompositions.recurrent import CALLS
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import rewritten
from golow.lower.operators.recurrence import Recurrence
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.recognise.recurrences import unfold_recurrences

# Below this many steps the loop is faster, which needs no copy of the weights in the library's
# order: two of an LSTM of 1024 units with its gradients took 0.23 ms, and 0.30 ms by the library;
# four of 128 units 0.15 and 0.13 ms.
FEWEST_STEPS = 3


def keep_faster_recurrences(graph: Graph) -> Graph:
    """Make a recurrent network of several time steps one operator: in inference all its layers, in
    training each layer in each direction, or layers in one direction without dropout between
    them."""
    if graph.mode == "train":
        return join_layers(unfold_recurrences(graph, _is_long))
    values = graph.values()
    replaced = {
        position: (whole,)
        for position, node in enumerate(graph.nodes)
        if (whole := _whole(node, values)) is not None
    }
    return rewritten(graph, replaced) if replaced else graph


def _is_long(layer: Recurrence, values: dict[str, Value]) -> bool:
    return values[layer.x.name].shape[0] >= FEWEST_STEPS


def _whole(node: Node, values: dict[str, Value]) -> Node | None:
    """ATen's call of a recurrent network as one operator; None for any other node, for dropout
    between layers, and where the loop is faster."""
    kind = CALLS.get(node.op)
    if kind is None:
        return None
    x, first, weights, biased, layers, dropout, trains, bidirectional, batch_first = node.arguments
    states = first if isinstance(first, tuple) else (first,)
    if (dropout and trains) or not isinstance(x, Ref) or not isinstance(weights, tuple):
        return None
    if values[x.name].shape[1 if batch_first else 0] < FEWEST_STEPS:
        return None
    operator = RecurrentLayers(
        kind=kind,  # type: ignore[arg-type]
        layers=layers,  # type: ignore[arg-type]
        bidirectional=bool(bidirectional),
        batch_first=bool(batch_first),
        biased=bool(biased),
        x=x,
        hidden=states[0],  # type: ignore[arg-type]
        cell=states[1] if kind == "lstm" else None,  # type: ignore[arg-type]
        weights=weights,  # type: ignore[arg-type]
    )
    return written(node, operator)
