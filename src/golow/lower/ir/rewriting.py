"""Tools for passes that replace nodes: which nodes make and read a value, and replacing nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from golow.lower.ir.graph import Argument, Graph, GraphInput, Node, Ref, Scalar, Value
from golow.lower.ir.operator import Operator, vocabulary, written


class Names:
    """Names that the graph does not have yet."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {*graph.values(), *(node.name for node in graph.nodes)}

    def free(self, wanted: str) -> str:
        """The name, or the name with the next free number."""
        name, number = wanted, 1
        while name in self._taken:
            name, number = f"{wanted}_v{number}", number + 1
        self._taken.add(name)
        return name


class Links:
    """Maker and readers of every value of a graph, as positions of nodes, and the values by name.

    Nodes are identified by position, not by name, because a layer that runs twice has two nodes
    with the same name.
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
        """Position of the only node that reads the value; None if several do, or none, or if the
        value is an output of the graph."""
        readers = self.readers[name]
        return readers[0] if len(readers) == 1 and name not in self.returned else None


# Python's operators; ``aten.__and__.Tensor`` only looks like one of them.
IN_PLACE_OPERATORS = {
    "aten.__iand__": "aten.bitwise_and",
    "aten.__ior__": "aten.bitwise_or",
    "aten.__ixor__": "aten.bitwise_xor",
    "aten.__ilshift__": "aten.bitwise_left_shift",
    "aten.__irshift__": "aten.bitwise_right_shift",
}


def changes_in_place(node: Node) -> bool:
    """True if the operation overwrites one of its arguments: the first (``aten.relu_.default``), or
    the one named ``out``."""
    packet = node.op.rpartition(".")[0]
    by_name = packet.endswith("_") and not packet.endswith("__")
    return by_name or packet in IN_PLACE_OPERATORS or "out" in node.keywords


def changed_inputs(graph: Graph) -> dict[int, GraphInput]:
    """The inputs of the graph that operations in place change, by the operations' positions."""
    inputs = {item.value.name: item for item in graph.inputs}
    found: dict[int, GraphInput] = {}
    for position, node in enumerate(graph.nodes):
        item = inputs.get(next(node.references(), ""))
        changes, kind = changes_in_place(node), vocabulary().get(node.op)
        if item is not None and (changes or (kind is not None and kind.is_view)):
            found |= {position: item} if changes else {}
            inputs |= {value.name: item for value in node.outputs if value is not None}
    return found


def result(node: Node, index: int = 0) -> str:
    """Name of one of the node's values; empty if nothing reads it."""
    value = node.outputs[index]
    return "" if value is None else value.name


def rewritten(
    graph: Graph, replaced: Mapping[int, Sequence[Node]], renamed: Mapping[str, str] | None = None
) -> Graph:
    """The graph with the nodes at these positions replaced (by nothing: removed), and with values
    renamed in its nodes' arguments and in its outputs."""
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


def in_order(graph: Graph) -> Graph:
    """The graph with nodes that are before what they read moved behind it."""
    made = {item.value.name for item in graph.inputs}
    nodes: list[Node] = []
    waiting: list[Node] = []
    for node in graph.nodes:
        waiting.append(node)
        ready = 0
        while ready < len(waiting):
            if made.issuperset(waiting[ready].references()):
                nodes.append(waiting.pop(ready))
                made.update(value.name for value in nodes[-1].outputs if value is not None)
                ready = 0
            else:
                ready += 1
    return msgspec.structs.replace(graph, nodes=(*nodes, *waiting))


def with_names(node: Node, names: Mapping[str, str]) -> Node:
    """The node with the values that it reads renamed."""

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
    """Paths of the layers in the first node after it absorbs the others, without its own path."""
    paths = [*first.absorbed, *(p for node in others for p in (node.module, *node.absorbed))]
    return tuple(dict.fromkeys(path for path in paths if path != first.module))


def once(beside: Node, operator: Operator, value: Value) -> Node:
    """A new node that computes a value from weights alone, in the same layer as ``beside``."""
    return written(
        Node(name=value.name, op="", arguments=(), module=beside.module, phase=beside.phase),
        operator,
        outputs=(value,),
    )
