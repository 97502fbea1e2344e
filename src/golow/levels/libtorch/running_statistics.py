"""Finds batch norms that may write their running statistics in place, as eager does.

The captured step has no side effects: batch norm takes the old statistics and returns new ones,
which become the buffers' new content. If nothing else reads the old ones, the operator can write
into the buffers instead: without copies, and bit for bit as in eager.

The operator for this in captured graphs runs PyTorch's own kernels. Eager's module lets PyTorch
choose the library instead, which on a GPU is cuDNN. The operator that makes this choice, and its
backward, replace the captured ones wherever possible.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value

FUNCTIONAL = "aten._native_batch_norm_legit_functional.default"
IN_PLACE = "aten._native_batch_norm_legit.default"
BACKWARD = "aten.native_batch_norm_backward.default"
# These choose the library. The first passes the library's saved data to the second.
CHOOSING = "aten._batch_norm_with_update.default"
CHOOSING_BACKWARD = "aten.batch_norm_backward.default"
STATISTICS = (3, 4)  # running mean and variance: among the arguments, and among the outputs


class Update(NamedTuple):
    """One statistic of one batch norm: the value that the node reads and the one it makes.

    node: the position in the graph, because the nodes of a layer that runs twice share a name.
    """

    node: int
    old: str
    new: str


def written_in_place(graph: Graph) -> dict[str, str]:
    """Maps each new statistic that may be written into a buffer to the value of that buffer.

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


def in_place(graph: Graph, written: Mapping[str, str]) -> Graph:
    """The graph with operators that write these statistics into the buffers."""
    kept: dict[str, Ref] = {}  # saved data for the backward, by the batch mean's name

    def changed(node: Node) -> Node:
        if node.op == FUNCTIONAL and _writes(node, written):
            if node.arguments[1] is None or node.arguments[2] is None:  # weight, bias
                return msgspec.structs.replace(node, op=IN_PLACE, outputs=node.outputs[:3])
            return _choosing(node, kept)
        mean = node.arguments[5] if node.op == BACKWARD else None
        if isinstance(mean, Ref) and mean.name in kept:
            arguments = (*node.arguments, kept[mean.name])
            return msgspec.structs.replace(node, op=CHOOSING_BACKWARD, arguments=arguments)
        return node

    return msgspec.structs.replace(graph, nodes=tuple(map(changed, graph.nodes)))


def _writes(node: Node, written: Mapping[str, str]) -> bool:
    new = [node.outputs[position] for position in STATISTICS]
    return all(value is not None and value.name in written for value in new)


def _choosing(node: Node, kept: dict[str, Ref]) -> Node:
    """The forward operator that chooses the library; it always runs in training mode."""
    arguments = (*node.arguments[:5], *node.arguments[6:])
    mean = node.outputs[1]
    reserve = None
    if mean is not None:
        # Its size depends on the library. With the dot, the name cannot be another value's.
        reserve = Value(name=f"{mean.name}.reserve", shape=(), dtype="uint8")
        kept[mean.name] = Ref(name=reserve.name)
    outputs = (*node.outputs[:3], reserve)
    return msgspec.structs.replace(node, op=CHOOSING, arguments=arguments, outputs=outputs)


def _buffers(graph: Graph) -> dict[str, str]:
    """Maps each value that a step may write to its target."""
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
    """True if only the chain reads the values it overwrites, and its end is the new buffer."""
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
    """Positions of the nodes that read the value, with repetitions."""
    for index, node in enumerate(graph.nodes):
        arguments = node.arguments
        if node.op == BACKWARD and arguments[7] is True:
            # In training the backward takes the running statistics but does not read them.
            arguments = tuple(a for i, a in enumerate(arguments) if i not in STATISTICS)
        looked_at = msgspec.structs.replace(node, arguments=arguments)
        yield from (index for name in looked_at.references() if name == value)
