"""Passes for the training step on a GPU: batch norm with the residual and the activation that
follow it, in both directions. One kernel then writes what three would write and read again."""

from __future__ import annotations

import msgspec

from golow.lower.fusion import ADD, activation_of
from golow.lower.graph import Argument, Graph, Node, Ref
from golow.lower.rewriting import Links, absorbing, result, rewritten
from golow.lower.training import BATCH_NORM, BATCH_NORM_BACKWARD

ACTIVATED, ACTIVATED_BACKWARD = "golow.batch_norm_activated", "golow.batch_norm_activated_backward"
CLIPPED = ("relu", "clip")  # activations that a comparison or two make


def fuse_batch_norm_activation(graph: Graph) -> Graph:
    """Put the addition and activation that alone read a batch norm into it, and their gradients
    into the gradient of the norm."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        found = _activated(links, node, position)
        if found is None:
            continue
        maker, residual, activation = found
        backward = _backward(links, result(node), activation, links.nodes[maker])
        if maker in replaced or backward is None:
            continue
        norm = links.nodes[maker]
        x, scale, shift, mean, variance, _, momentum, epsilon = norm.arguments
        arguments = (x, residual, scale, shift, mean, variance, momentum, epsilon, activation)
        fused = msgspec.structs.replace(
            norm,
            op=ACTIVATED,
            arguments=arguments,
            outputs=(node.outputs[0], *norm.outputs[1:]),
            absorbed=absorbing(norm, node),
        )
        replaced |= {maker: (), position: (fused,)}
        replaced |= _fused_backward(links, result(node), activation, *backward)
    return rewritten(graph, replaced)


def _activated(links: Links, node: Node, position: int) -> tuple[int, Argument, Argument] | None:
    """Position of the batch norm that the node activates, what it adds before, and how."""
    if node.op == ADD:
        one, other, activation = node.arguments
        pairs = [(one, other), (other, one)]
    else:
        found = activation_of(node)
        activation, pairs = found, [(node.arguments[0], None)] if found else []
    if not isinstance(activation, tuple) or activation == () or activation[0] not in CLIPPED:
        return None
    makers = [
        (maker, residual, activation)
        for normed, residual in pairs
        if (maker := links.made_by(normed, BATCH_NORM)) is not None
        and links.only_reader(result(links.nodes[maker])) == position
        and links.values[result(links.nodes[maker])].shape == links.values[result(node)].shape
    ]
    return max(makers, key=lambda item: item[0], default=None)


def _backward(
    links: Links, activated: str, activation: Argument, norm: Node
) -> tuple[int, int] | None:
    """Positions of the activation's and of the norm's gradient; None unless both are there."""
    for position in links.readers[activated]:
        node = links.nodes[position]
        if node.op != "golow.activation_backward":
            continue
        if node.arguments[1:] != (Ref(name=activated), activation):
            continue
        for reader in links.readers[result(node)]:
            arguments = links.nodes[reader].arguments
            if links.nodes[reader].op == BATCH_NORM_BACKWARD and arguments[:2] == (
                Ref(name=result(node)),
                norm.arguments[0],
            ):
                return position, reader
    return None


def _fused_backward(
    links: Links, activated: str, activation: Argument, outer: int, norm: int
) -> dict[int, tuple[Node, ...]]:
    """The gradient of both where that of the activation was: all that it needs is there. What
    reaches the residual is a further result, where anybody reads it."""
    gradient = links.nodes[outer]
    _, x, scale, _, _, mean, deviation, _, epsilon, wanted = links.nodes[norm].arguments
    others = links.only_reader(result(gradient)) is None
    assert isinstance(wanted, tuple)  # noqa: S101
    arguments = (
        *(gradient.arguments[0], Ref(name=activated), x, scale, mean, deviation, epsilon),
        *(activation, (*wanted, others)),
    )
    new = msgspec.structs.replace(
        links.nodes[norm],
        op=ACTIVATED_BACKWARD,
        arguments=arguments,
        outputs=(*links.nodes[norm].outputs, gradient.outputs[0] if others else None),
        absorbed=absorbing(links.nodes[norm], gradient),
    )
    return {outer: (new,), norm: ()}


def fuse_gradient_sum(graph: Graph) -> Graph:
    """Put the sum of two gradients, where a block's input was read twice, into the gradient of the
    norm that alone reads it."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        if node.op != ACTIVATED_BACKWARD or len(node.arguments) > 9:
            continue
        maker = links.made_by(node.arguments[0], "aten.add.Tensor")
        if maker is None or links.only_reader(result(links.nodes[maker])) != position:
            continue
        added = links.nodes[maker]
        one, *others = added.arguments
        shape = links.values[result(added)].shape
        if added.keywords or len(others) != 1 or not isinstance(others[0], Ref):
            continue
        if not isinstance(one, Ref) or {links.values[r.name].shape for r in (one, others[0])} != {
            shape
        }:
            continue
        fused = msgspec.structs.replace(node, arguments=(one, *node.arguments[1:], others[0]))
        replaced |= {maker: (), position: (fused,)}
    return rewritten(graph, replaced)
