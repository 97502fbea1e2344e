"""Functionalisation: replaces in-place operations with ones that make a new value."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import torch

from golow.lower.aten.aliasing import SharedMemory, View, overwritten, whole_after
from golow.lower.aten.strided import STRIDED
from golow.lower.ir.graph import Graph, Node, Ref, Symbol, Value
from golow.lower.ir.rewriting import IN_PLACE_OPERATORS, Names, result, with_names
from golow.lower.ir.verify import operation, results_of


def make_functional(graph: Graph) -> Graph:
    """Replace in-place operations with ones that make a new value.

    Later readers of the changed value read the new one. What it is a view of is computed anew
    (``y[:, 1] = x``), and other views of the same memory are taken again when something reads them.
    Where the memory is a parameter's, a constant's or that of a buffer that the graph does not
    return, or a view is unknown, all that happens in that memory stays as it is; the levels refuse
    it.
    """
    writes = [index for index, node in enumerate(graph.nodes) if overwritten(node) is not None]
    if not writes:
        return graph
    memory = SharedMemory(graph)
    for node in graph.nodes[: writes[-1] + 1]:
        memory.run(node)
    kept = {i.value.name for i in graph.inputs if i.kind in ("parameter", "buffer", "constant")}
    kept -= {item.name for item in graph.outputs if item.kind == "buffer"}
    while True:
        try:
            return _Writer(graph, memory.views, kept).written()
        except _CannotFollowError as error:
            kept.add(error.memory)


class _CannotFollowError(Exception):
    """An in-place operation must stay. memory: the first value in the memory that it changes."""

    def __init__(self, memory: str) -> None:
        super().__init__(memory)
        self.memory = memory


@dataclass
class _Memory:
    """first: name of the first value in it. version: how often it was written."""

    first: str
    version: int = 0


@dataclass
class _Tensor:
    """A tensor of the model. name: the value that has its content, as of a version of its memory.
    view: what it is of its parent; neither for the first tensor of its memory."""

    name: str
    memory: _Memory
    version: int = 0
    parent: _Tensor | None = None
    view: View | None = None


@dataclass
class _Writer:
    """Writes the graph anew. kept: first values of the memory whose changes stay in place."""

    graph: Graph
    views: dict[str, View]
    kept: set[str]
    nodes: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.names = Names(self.graph)
        self.values = self.graph.values()
        self.tensors: dict[str, _Tensor] = {}
        for item in self.graph.inputs:
            self.add(item.value.name)

    def written(self) -> Graph:
        for node in self.graph.nodes:
            changed = overwritten(node)
            renamed = with_names(node, {name: self.read(name) for name in node.references()})
            renamed = self.in_order(renamed, node)
            if changed is None or self.tensors[changed].memory.first in self.kept:
                self.nodes.append(renamed)
                for value in (value for value in node.outputs if value is not None):
                    if changed is None:
                        self.add(value.name)
                    else:
                        self.tensors[value.name] = self.tensors[changed]
            else:
                self.replace(node, renamed, changed)
        outputs = tuple(
            msgspec.structs.replace(item, name=self.read(item.name)) for item in self.graph.outputs
        )
        return msgspec.structs.replace(self.graph, nodes=tuple(self.nodes), outputs=outputs)

    def add(self, name: str) -> None:
        """A new tensor, by the value that holds it."""
        view = self.views.get(name)
        if view is None:
            self.tensors[name] = _Tensor(name, _Memory(name))
        else:
            parent = self.tensors[view.source.name]
            version = parent.memory.version
            self.tensors[name] = _Tensor(name, parent.memory, version, parent, view)

    def read(self, name: str) -> str:
        """The value that holds what the tensor holds now."""
        return self.content(self.tensors[name])

    def content(self, tensor: _Tensor) -> str:
        if tensor.version != tensor.memory.version:
            assert tensor.view is not None  # noqa: S101
            node, index = tensor.view.node, tensor.view.position
            value = self.named(tensor.view.value)
            outputs = tuple(value if i == index else None for i in range(len(node.outputs)))
            given = {name: self.read(name) for name in node.references()}
            given[tensor.view.source.name] = self.content(tensor.parent)  # type: ignore[arg-type]
            again = self.in_order(with_names(node, given), node)
            again = msgspec.structs.replace(again, name=value.name)
            self.nodes.append(msgspec.structs.replace(again, outputs=outputs))
            tensor.name, tensor.version = value.name, tensor.memory.version
        return tensor.name

    def named(self, value: Value) -> Value:
        """A value of the same form that the graph does not have yet."""
        new = msgspec.structs.replace(value, name=self.names.free(f"{value.name}_again"))
        self.values[new.name] = new
        return new

    def replace(self, node: Node, renamed: Node, changed: str) -> None:
        """The node's counterpart that makes a new value, and what that means for its memory."""
        tensor = self.tensors[changed]
        op = _functional_name(node)
        if op is None:
            raise _CannotFollowError(tensor.memory.first)
        keywords = {name: item for name, item in renamed.keywords.items() if name != "out"}
        made = msgspec.structs.replace(renamed, op=op, keywords=keywords)
        if torch.Tag.inplace_view in operation(node.op).tags:
            self.nodes.append(made)
            view = View(made, 0, self.values[changed], of_whole=False)
            now = _Tensor(result(node), tensor.memory, tensor.version, tensor, view)
            for name in [name for name, other in self.tensors.items() if other is tensor]:
                self.tensors[name] = now
            self.tensors[result(node)] = now
            return
        self.nodes += self.in_type(made, self.values[changed])
        self.tensors[result(node)] = tensor
        self.write(tensor, result(node))

    def in_type(self, made: Node, changed: Value) -> list[Node]:
        """The node, and a conversion to the type of what it replaces where the types of its
        arguments decide what it gives."""
        (found,) = results_of(made, self.values)
        if found.dtype == changed.dtype:
            return [made]
        own = self.named(msgspec.structs.replace(found, name=result(made)))
        to = Symbol(kind="dtype", name=changed.dtype)
        first = msgspec.structs.replace(made, name=own.name, outputs=(own,))
        convert = msgspec.structs.replace(
            made, op="aten.to.dtype", arguments=(Ref(name=own.name), to), keywords={}
        )
        return [first, convert]

    def write(self, tensor: _Tensor, name: str) -> None:
        """The tensor has this content from now on; so do all that it is a part of."""
        tensor.memory.version += 1
        while True:
            tensor.name, tensor.version = name, tensor.memory.version
            if tensor.parent is None or tensor.view is None:
                return
            name = self.whole(tensor.view, tensor.parent, name)
            tensor = tensor.parent

    def whole(self, view: View, parent: _Tensor, part: str) -> str:
        rewrite = whole_after(view)
        if rewrite is None:
            raise _CannotFollowError(parent.memory.first)
        value = self.named(view.source)
        first = (Ref(name=parent.name),) if rewrite.takes_whole else ()
        node = Node(
            name=value.name,
            op=rewrite.op,
            arguments=(*first, Ref(name=part), *rewrite.arguments),
            outputs=(value,),
            module=view.node.module,
            phase=view.node.phase,
        )
        self.nodes.append(self.in_order(node, view.node))
        return value.name

    def in_order(self, node: Node, model: Node) -> Node:
        """The node itself; one that counts places in memory gets its argument in order, since what
        a changed tensor is computed from may be in another one. model: the node before values were
        renamed."""
        source, known = node.arguments[0] if node.arguments else None, self.tensors
        changed = any(known[name].memory.version for name in model.references() if name in known)
        if node.op not in STRIDED or not isinstance(source, Ref) or not changed:
            return node
        value = self.named(self.values[source.name])
        contiguous = {"memory_format": Symbol(kind="memory_format", name="contiguous_format")}
        copy = msgspec.structs.replace(
            node,
            name=value.name,
            op="aten.clone.default",
            arguments=(source,),
            keywords=contiguous,
            outputs=(value,),
        )
        self.nodes.append(copy)
        return with_names(node, {source.name: value.name})


def _functional_name(node: Node) -> str | None:
    """The operation that makes a new value of what this one writes; None if PyTorch has none."""
    packet, _, overload = node.op.rpartition(".")
    packet = IN_PLACE_OPERATORS.get(packet, packet)
    overloads = [overload]
    if "out" in node.keywords:
        overloads = ["Tensor", "default"] if overload == "out" else [overload.removesuffix("_out")]
    else:
        packet = packet.removesuffix("_")
    for name in (f"{packet}.{overload}" for overload in overloads):
        with_it = getattr(torch.ops.aten, packet.removeprefix("aten."), None)
        if with_it is not None and name.rpartition(".")[2] in with_it.overloads():
            return name
    return None
