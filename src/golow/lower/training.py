"""Passes for the training step: restore operators that AOTAutograd decomposed, and add SGD's update
to the graph."""

from __future__ import annotations

import msgspec

from golow.lower.graph import Activation, Graph, GraphInput, GraphOutput, Node, Ref, Value
from golow.lower.operator import activation_functions, vocabulary, written
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.adaptive_average_pool import (
    AdaptiveAveragePool,
    AdaptiveAveragePoolBackward,
)
from golow.lower.operators.binary import Binary
from golow.lower.operators.expand import Expand
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.sgd_update import SgdUpdate
from golow.lower.patterns import Found, Fusion, Match, Rule, fuse, node
from golow.lower.rewriting import Links, result, rewritten
from golow.record import Optimizer

IMAGE_AXES = (2, 3)


def name_global_pooling(graph: Graph) -> Graph:
    """Turn the mean over an image, and the spreading of its gradient, back into pooling."""
    return fuse(fuse(graph, GLOBAL_POOLING), SPREAD_GRADIENT)


def _pooled(match: Match) -> list[Fusion]:
    operator = AdaptiveAveragePool(x=match.arguments("mean", Reduce).x, size=(1, 1))
    return [Fusion(operator, "mean", (), "mean", match["mean"].node.outputs)]


def _of_an_image(found: Found) -> bool:
    return isinstance(found.arguments, Reduce) and len(found.shape(found.arguments.x)) == 4


GLOBAL_POOLING = Rule(
    [node("mean", Reduce, function="mean", axes=IMAGE_AXES, keep=True, where=_of_an_image)], _pooled
)


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


def append_update(graph: Graph, optimizer: Optimizer) -> Graph:
    """Add SGD's update of every parameter that has a gradient, as early as possible.

    Directly after it is computed, the gradient is still in the cache and does not have to be kept
    any longer. A parameter that a later node reads is updated after that node. The learning rate is
    an input, so that it can change from step to step.
    """
    links = Links(graph)
    parameters = {item.target: item.value for item in graph.inputs if item.kind == "parameter"}
    rate = Value(name="learning_rate", shape=(), dtype="float32")
    after: dict[int, list[Node]] = {}
    inputs = [GraphInput(value=rate, kind="learning_rate", target="")]
    outputs: list[GraphOutput] = []
    for item in graph.outputs:
        if item.kind != "gradient":
            continue
        parameter = parameters[item.target]
        momentum = msgspec.structs.replace(parameter, name=f"{parameter.name}_momentum")
        inputs.append(GraphInput(value=momentum, kind="momentum", target=item.target))
        layer = item.target.rpartition(".")[0]
        update = _update(parameter, momentum, item.name, rate, optimizer, layer)
        last = max(links.maker[item.name], _last_read(links, parameter.name))
        after.setdefault(last, []).append(update)
        moved, updated = (result(update, index) for index in (0, 1))
        outputs.append(GraphOutput(name=moved, kind="momentum", target=item.target))
        outputs.append(GraphOutput(name=updated, kind="parameter", target=item.target))
    nodes = tuple(
        new for position, this in enumerate(graph.nodes) for new in (this, *after.get(position, ()))
    )
    return msgspec.structs.replace(
        graph, inputs=(*graph.inputs, *inputs), nodes=nodes, outputs=(*graph.outputs, *outputs)
    )


def _last_read(links: Links, name: str) -> int:
    """Position of the last node that reads the value, or a view of it."""
    last = -1
    for position in links.readers[name]:
        node = links.nodes[position]
        last = max(last, position)
        kind = vocabulary().get(node.op)
        if kind is not None and kind.is_view:
            last = max(last, _last_read(links, result(node)))
    return last


def _update(
    parameter: Value, momentum: Value, gradient: str, rate: Value, optimizer: Optimizer, layer: str
) -> Node:
    moved = msgspec.structs.replace(parameter, name=f"{momentum.name}_new")
    updated = msgspec.structs.replace(parameter, name=f"{parameter.name}_new")
    operator = SgdUpdate(
        parameter=Ref(name=parameter.name),
        momentum=Ref(name=momentum.name),
        gradient=Ref(name=gradient),
        learning_rate=Ref(name=rate.name),
        factor=optimizer.momentum,
        weight_decay=optimizer.weight_decay,
    )
    empty = Node(name=updated.name, op="", arguments=(), module=layer, phase="update")
    return written(empty, operator, outputs=(moved, updated))
