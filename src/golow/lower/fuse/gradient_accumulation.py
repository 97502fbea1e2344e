"""Gradient accumulation: adds the gradients of several steps up before one update.

A training graph becomes two that share what is between them. One adds its gradients to the sums,
and has no gradient left; the other one adds the sums to its gradients, which then are those of all
steps. The caller of the second one sets the sums to zero afterwards.
"""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, GraphInput, GraphOutput, Node, Ref
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links
from golow.lower.operators.loss_gradient import LossGradient


def add_to_sums(graph: Graph, every: int) -> Graph:
    """The step that only adds its gradients, each an ``every``-th of them, to the sums."""
    return _with_sums(graph, every, "gradient_sum")


def add_sums(graph: Graph, every: int) -> Graph:
    """The step whose gradients are those of ``every`` steps, the last of which it is."""
    return _with_sums(graph, every, "gradient")


def _with_sums(graph: Graph, every: int, kind: str) -> Graph:
    links = Links(graph)
    parameters = {item.target: item.value for item in graph.inputs if item.kind == "parameter"}
    inputs: list[GraphInput] = []
    outputs: list[GraphOutput] = []
    after: dict[int, list[Node]] = {}
    for item in graph.outputs:
        if item.kind != "gradient":
            outputs.append(item)
            continue
        like = parameters[item.target]
        before = msgspec.structs.replace(like, name=f"{like.name}_gradient_sum")
        total = msgspec.structs.replace(like, name=f"{like.name}_gradient_sum_new")
        inputs.append(GraphInput(value=before, kind="gradient_sum", target=item.target))
        position = links.maker[item.name]
        add = Node(
            name=total.name,
            op="aten.add.Tensor",
            arguments=(Ref(name=before.name), Ref(name=item.name)),
            outputs=(total,),
            module=item.target.rpartition(".")[0],
            phase="backward",
        )
        after.setdefault(position, []).append(add)
        outputs.append(GraphOutput(name=total.name, kind=kind, target=item.target))  # type: ignore[arg-type]
    nodes = [
        node
        for position, first in enumerate(graph.nodes)
        for node in (_shared(first, every), *after.get(position, ()))
    ]
    return msgspec.structs.replace(
        graph, inputs=(*graph.inputs, *inputs), nodes=tuple(nodes), outputs=tuple(outputs)
    )


def _shared(node: Node, every: int) -> Node:
    """Where backward begins, begin with an ``every``-th of the loss."""
    start = LossGradient.of(node)
    return (
        node if start is None else written(node, LossGradient(dtype=start.dtype, share=1 / every))
    )
