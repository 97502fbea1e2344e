"""Idiom recognition in training steps: restores operators that AOTAutograd decomposed."""

from __future__ import annotations

import msgspec

from golow.lower.fuse.pooling import GLOBAL_POOLING
from golow.lower.ir.graph import Activation, Graph, Node, Ref
from golow.lower.ir.operator import activation_functions, written
from golow.lower.ir.patterns import Fusion, Match, Rule, fuse, node
from golow.lower.ir.rewriting import result, rewritten
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePoolBackward,
)
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand


def name_global_pooling(graph: Graph) -> Graph:
    """Turn the mean over an image, and the spreading of its gradient, back into pooling."""
    return fuse(fuse(graph, GLOBAL_POOLING), SPREAD_GRADIENT)


def _spread(match: Match) -> list[Fusion]:
    """expand(gradient [N, C, 1, 1]) / (H W), as the gradient of pooling to one pixel."""
    shape = match["share"].output.shape
    gradient = match.arguments("spread", Expand).x
    if len(shape) != 4 or match["spread"].shape(gradient) != (*shape[:2], 1, 1):
        return []
    images, channels, height, width = shape
    if match.arguments("share", Binary).b != height * width:
        return []
    operator = AdaptiveAveragePoolBackward(
        gradient=gradient, shape=(images, channels, height, width)
    )
    return [Fusion(operator, "share", ("spread",), "share", match["share"].node.outputs)]


SPREAD_GRADIENT = Rule(
    [
        node(
            "share",
            Binary,
            function="divide",
            activation=None,
            a=node("spread", Expand, alone=True),
        )
    ],
    _spread,
)


def take_gradients_from_results(graph: Graph) -> Graph:
    """Make gradients of activations read the activation's result, if the function allows it.

    ATen's hardtanh_backward, for example, reads the argument, which would have to be kept in
    addition to the result.
    """
    results: dict[tuple[str, Activation], str] = {}
    for this in graph.nodes:
        forward = Activate.of(this)
        if forward is not None:
            results[(forward.x.name, forward.activation)] = result(this)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, this in enumerate(graph.nodes):
        backward = ActivateBackward.of(this)
        if backward is None or backward.from_result:
            continue
        found = results.get((backward.value.name, backward.activation))
        if found and activation_functions()[backward.activation.name].reads == "either":
            new = msgspec.structs.replace(backward, value=Ref(name=found), from_result=True)
            replaced[position] = (written(this, new),)
    return rewritten(graph, replaced)
