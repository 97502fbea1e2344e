"""Which batch norms may write their running statistics in place, as eager does.

The captured step is free of side effects: batch norm takes the old statistics and returns new
ones, which leave as the buffers' new content. Where nobody else reads the old ones, the operator
may as well write into the buffers: no copies, and bit for bit what eager calculates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from golow.lower.graph import Graph, Node, Ref

FUNCTIONAL = "aten._native_batch_norm_legit_functional.default"
IN_PLACE = "aten._native_batch_norm_legit.default"
BACKWARD = "aten.native_batch_norm_backward.default"
STATISTICS = (3, 4)  # running mean and variance: among the arguments, and among the outputs


class Update(NamedTuple):
    """One statistic of one batch norm: the value that the node reads and the one it makes.

    node is the position in the graph, because the nodes of a layer that runs twice share a name.
    """

    node: int
    old: str
    new: str


def written_in_place(graph: Graph) -> dict[str, str]:
    """The buffer's value, by every new statistic that may be written into that buffer.

    A layer that runs twice in a step makes a chain of updates of one buffer.
    """
    chains = {buffer: list(_chain(graph, buffer)) for buffer in _buffers(graph)}
    chains = {b: chain for b, chain in chains.items() if chain and _may(graph, b, chain)}
    # The operator writes both statistics or none.
    while True:
        count = Counter(update.node for chain in chains.values() for update in chain)
        kept = {b: c for b, c in chains.items() if all(count[u.node] == 2 for u in c)}
        if len(kept) == len(chains):
            return {update.new: buffer for buffer, chain in kept.items() for update in chain}
        chains = kept


def in_place(node: Node, written: Mapping[str, str]) -> Node:
    """The node as the operator that writes its statistics into the buffers, where it may."""
    if node.op != FUNCTIONAL:
        return node
    new = [node.outputs[position] for position in STATISTICS]
    if not all(value is not None and value.name in written for value in new):
        return node
    return msgspec.structs.replace(node, op=IN_PLACE, outputs=node.outputs[:3])


def _buffers(graph: Graph) -> dict[str, str]:
    """Target by value of everything that a step may write to."""
    kinds = ("buffer", "constant")
    return {item.value.name: item.target for item in graph.inputs if item.kind in kinds}


def _chain(graph: Graph, buffer: str) -> Iterator[Update]:
    """The updates that start at the buffer, one after another."""
    value = buffer
    for index, node in enumerate(graph.nodes):
        if node.op != FUNCTIONAL or len(node.arguments) < 6 or node.arguments[5] is not True:
            continue
        for position in STATISTICS:
            new = node.outputs[position]
            if node.arguments[position] == Ref(name=value) and new is not None:
                yield Update(index, value, new.name)
                value = new.name
                break


def _may(graph: Graph, buffer: str, chain: list[Update]) -> bool:
    """Whether only the chain itself reads what it overwrites, and its end is the new buffer."""
    target = _buffers(graph)[buffer]
    leaving: dict[str, list[tuple[str, str]]] = {}
    for item in graph.outputs:
        leaving.setdefault(item.name, []).append((item.kind, item.target))
    if any(update.old in leaving for update in chain):
        return False
    if leaving.get(chain[-1].new) != [("buffer", target)]:
        return False
    return all(list(_readers(graph, update.old)) == [update.node] for update in chain)


def _readers(graph: Graph, value: str) -> Iterator[int]:
    """Positions of the nodes that read the value, as often as they do."""
    for index, node in enumerate(graph.nodes):
        arguments = node.arguments
        if node.op == BACKWARD and arguments[7] is True:
            # In training the backward takes the running statistics and does not look at them.
            arguments = tuple(a for i, a in enumerate(arguments) if i not in STATISTICS)
        looked_at = msgspec.structs.replace(node, arguments=arguments)
        yield from (index for name in looked_at.references() if name == value)
