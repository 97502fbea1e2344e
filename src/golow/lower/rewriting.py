"""What passes that replace nodes have in common: who makes a value, who reads it, and putting
new nodes in the place of old ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from golow.lower.graph import Argument, Graph, Node, Ref, Scalar


class Links:
    """Maker and readers of every value of a graph, by their positions among its nodes, and the
    values themselves by name.

    A position is used and not a node's name, because a layer that runs twice has two nodes of
    one name.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = graph.nodes
        self.values = graph.values()
        self.maker: dict[str, int] = {}
        self.readers: dict[str, list[int]] = defaultdict(list)
        self.returned = {item.name for item in graph.outputs}
        for position, node in enumerate(graph.nodes):
            for name in node.references():
                if position not in self.readers[name][-1:]:
                    self.readers[name].append(position)
            for value in node.outputs:
                if value is not None:
                    self.maker[value.name] = position

    def made_by(self, argument: Argument, *ops: str) -> int | None:
        """Position of the node that makes this argument, if it is one of these operations."""
        position = self.maker.get(argument.name) if isinstance(argument, Ref) else None
        return position if position is not None and self.nodes[position].op in ops else None

    def only_reader(self, name: str) -> int | None:
        """Position of the one node that reads the value; None if several do, or none."""
        readers = self.readers[name]
        return readers[0] if len(readers) == 1 and name not in self.returned else None


def changes_in_place(node: Node) -> bool:
    """Whether the operation overwrites its first argument (``aten.relu_.default``; not
    ``aten.__and__.Tensor``, which only looks like it)."""
    packet = node.op.rpartition(".")[0]
    return packet.endswith("_") and not packet.endswith("__")


def result(node: Node, index: int = 0) -> str:
    """Name of one of the node's values; empty where nobody reads it."""
    value = node.outputs[index]
    return "" if value is None else value.name


def rewritten(
    graph: Graph, replaced: Mapping[int, Sequence[Node]], renamed: Mapping[str, str] | None = None
) -> Graph:
    """The graph with these nodes in place of those at these positions (none: removed), and with
    values under other names in what follows and in the outputs."""
    names = renamed or {}
    nodes: list[Node] = []
    for position, node in enumerate(graph.nodes):
        for new in replaced.get(position, (node,)):
            nodes.append(with_names(new, names) if names else new)
    outputs = tuple(
        msgspec.structs.replace(item, name=names.get(item.name, item.name))
        for item in graph.outputs
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes), outputs=outputs)


def with_names(node: Node, names: Mapping[str, str]) -> Node:
    """The node with other values in place of those that the names map away."""

    def scalar(item: Scalar) -> Scalar:
        return Ref(name=names.get(item.name, item.name)) if isinstance(item, Ref) else item

    def argument(given: Argument) -> Argument:
        return tuple(scalar(i) for i in given) if isinstance(given, tuple) else scalar(given)

    return msgspec.structs.replace(
        node,
        arguments=tuple(argument(a) for a in node.arguments),
        keywords={name: argument(a) for name, a in node.keywords.items()},
    )


def absorbing(first: Node, *others: Node) -> tuple[str, ...]:
    """Paths of the layers that are in the first node or come into it with the others, without
    its own."""
    paths = [*first.absorbed, *(p for node in others for p in (node.module, *node.absorbed))]
    return tuple(dict.fromkeys(path for path in paths if path != first.module))
