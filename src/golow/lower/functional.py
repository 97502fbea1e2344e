"""A pass on ATen's calls: replaces in-place operations with ones that make a new value."""

from __future__ import annotations

import msgspec

from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.rewriting import changes_in_place, result, with_names

VIEWS = frozenset(
    f"aten.{name}"
    for name in "view.default reshape.default flatten.using_ints t.default expand.default "
    "transpose.int permute.default unsqueeze.default squeeze.dim detach.default alias.default "
    "slice.Tensor select.int _unsafe_view.default squeeze.default squeeze.dims narrow.default "
    "view_as.default expand_as.default numpy_T.default mT.default unflatten.int movedim.int "
    "swapaxes.default diagonal.default chunk.default split.Tensor split_with_sizes.default "
    "unbind.int".split()
)
# These may return their argument: dropout in inference, contiguous if there is nothing to do.
MAYBE_VIEWS = VIEWS | {"aten.dropout.default", "aten.contiguous.default"}


# Views of a part, each with the operation that gives the whole with that part replaced.
PARTS = {
    "aten.slice.Tensor": "aten.slice_scatter.default",
    "aten.select.int": "aten.select_scatter.default",
}


def make_functional(graph: Graph) -> Graph:
    """Replace in-place operations with ones that make a new value.

    Later readers of the changed value read the new one; so do those of the tensor that it is a part
    of, as in ``y[:, 1] = x``. An operation stays as it is if it changes a parameter, a buffer, or
    memory that is still read under a further name; the levels refuse it.
    """
    sharing, values = _Sharing(graph), graph.values()
    names: dict[str, str] = {}
    nodes: list[Node] = []
    for position, old in enumerate(graph.nodes):
        node = with_names(old, names)
        changed = old.arguments[0] if changes_in_place(old) else None
        if isinstance(changed, Ref) and sharing.sees_it_alone(changed.name, position):
            packet, _, overload = old.op.rpartition(".")
            node = msgspec.structs.replace(node, op=f"{packet.removesuffix('_')}.{overload}")
            names |= dict.fromkeys(sharing.names_of(changed.name), result(old))
        elif isinstance(changed, Ref) and (path := sharing.path_to_whole(changed.name, position)):
            packet, _, overload = old.op.rpartition(".")
            node = msgspec.structs.replace(node, op=f"{packet.removesuffix('_')}.{overload}")
            nodes.append(node)
            names |= dict.fromkeys(sharing.names_of(changed.name), result(old))
            for view in path:
                nodes.append(_whole(view, nodes[-1], names, values, position))
                whole = sharing.names_of(_source(view))
                names |= dict.fromkeys(whole, nodes[-1].name)
            sharing.add(old)
            continue
        sharing.add(old)
        nodes.append(node)
    outputs = tuple(
        msgspec.structs.replace(item, name=names.get(item.name, item.name))
        for item in graph.outputs
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes), outputs=outputs)


def _whole(
    view: Node, part: Node, names: dict[str, str], values: dict[str, Value], position: int
) -> Node:
    """The tensor that a view shows a part of, with the part replaced."""
    source = _source(view)
    value = msgspec.structs.replace(values[source], name=f"{source}_with_{position}_{view.name}")
    return msgspec.structs.replace(
        view,
        name=value.name,
        op=PARTS[view.op],
        arguments=(
            Ref(name=names.get(source, source)),
            Ref(name=result(part)),
            *view.arguments[1:],
        ),
        outputs=(value,),
    )


def _source(view: Node) -> str:
    source = view.arguments[0]
    return source.name if isinstance(source, Ref) else ""


class _Sharing:
    """Which names share memory, according to the nodes added so far.

    memory: for each name the first value in its memory. tensor: the same, but a view counts as a
    separate tensor.
    """

    def __init__(self, graph: Graph) -> None:
        self.memory = {item.value.name: item.value.name for item in graph.inputs}
        self.tensor = dict(self.memory)
        self.views: dict[str, Node] = {}
        self.state = {i.value.name for i in graph.inputs if i.kind in ("parameter", "buffer")}
        self.last_read = {n: i for i, node in enumerate(graph.nodes) for n in node.references()}
        self.last_read |= {item.name: len(graph.nodes) for item in graph.outputs}

    def add(self, node: Node) -> None:
        source = node.arguments[0] if node.arguments else None
        for name in (value.name for value in node.outputs if value is not None):
            self.memory[name] = self.tensor[name] = name
            if isinstance(source, Ref) and node.op in MAYBE_VIEWS:
                self.memory[name] = self.memory[source.name]
                self.views[name] = node
            elif isinstance(source, Ref) and changes_in_place(node):
                self.memory[name] = self.memory[source.name]
                self.tensor[name] = self.tensor[source.name]

    def names_of(self, name: str) -> list[str]:
        """All names of the tensor."""
        return [other for other, first in self.tensor.items() if first == self.tensor[name]]

    def path_to_whole(self, name: str, position: int) -> list[Node]:
        """The views between a part and the tensor that it is part of, from the part on; empty if
        there are other views, or further names of that memory that are read later."""
        path, memory, tensor = [], self.memory[name], self.tensor[name]
        while tensor != memory:
            view = self.views.get(tensor)
            if view is None or view.op not in PARTS:
                return []
            path.append(view)
            tensor = self.tensor[_source(view)]
        known = {memory, self.tensor[name]}
        further = (
            other
            for other, first in self.memory.items()
            if first == memory and self.tensor[other] not in known
        )
        if memory in self.state or any(self.last_read.get(o, -1) > position for o in further):
            return []
        return path

    def sees_it_alone(self, name: str, position: int) -> bool:
        """Whether the tensor's memory holds no state and no other tensor that is read later."""
        memory, tensor = self.memory[name], self.tensor[name]
        return memory not in self.state and all(
            self.last_read.get(other, -1) <= position
            for other, first in self.memory.items()
            if first == memory and self.tensor[other] != tensor
        )
