"""Lowering of ``as_strided``: it reads memory, so it gets all of it in its order."""

from __future__ import annotations

import msgspec

from golow.lower.aten.aliasing import SharedMemory, is_whole
from golow.lower.ir.graph import Argument, Graph, Node, Ref, Value
from golow.lower.ir.rewriting import Names

READS = "aten.as_strided.default"
STRIDED = (READS, "aten.as_strided_scatter.default")


def stride_over_whole_memory(graph: Graph) -> Graph:
    """Let ``as_strided`` start from a tensor that is all of its memory, in that order.

    A graph does not describe how tensors are stored, and ``as_strided`` of ``x.t()`` or ``x[1:]``
    depends on it. It gets the first tensor in that memory, its axes ordered by their strides. Where
    the memory has gaps nothing changes.
    """
    if not any(node.op in STRIDED for node in graph.nodes):
        return graph
    names, memory, nodes = Names(graph), SharedMemory(graph), list[Node]()
    for node in graph.nodes:
        source = node.arguments[0] if node.op in STRIDED else None
        nodes += _from_whole(node, memory, source, names) if isinstance(source, Ref) else [node]
        memory.run(node)
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _from_whole(node: Node, memory: SharedMemory, source: Ref, names: Names) -> list[Node]:
    first = memory.first(source.name) if node.op == READS else source.name
    whole = memory.tensors[first]
    strides = whole.stride()
    order = sorted(range(whole.dim()), key=lambda axis: -strides[axis])
    if first == source.name and is_whole(whole):
        return [node]
    if not is_whole(whole.permute(order)):
        return [node]
    before = _permuted(node, memory.values[first], order, names.free(f"{first}_in_order"))
    ordered = before.outputs[0]
    assert ordered is not None  # noqa: S101
    arguments: tuple[Argument, ...] = (Ref(name=ordered.name), *node.arguments[1:])
    if node.op == READS:
        given = node.arguments[3] if len(node.arguments) > 3 else None
        offset = int(memory.tensors[source.name].storage_offset()) if given is None else given
        arguments = (*arguments[:3], offset)
        return [before, msgspec.structs.replace(node, arguments=arguments)]
    value = node.outputs[0]
    assert value is not None  # noqa: S101
    changed = msgspec.structs.replace(ordered, name=names.free(f"{value.name}_in_order"))
    write = msgspec.structs.replace(
        node, name=changed.name, arguments=arguments, outputs=(changed,)
    )
    back = [order.index(axis) for axis in range(len(order))]
    return [before, write, _permuted(node, changed, back, value.name)]


def _permuted(node: Node, value: Value, order: list[int], name: str) -> Node:
    """A node beside another one that orders the axes of a value."""
    shape = tuple(value.shape[axis] for axis in order)
    return msgspec.structs.replace(
        node,
        name=name,
        op="aten.permute.default",
        arguments=(Ref(name=value.name), tuple(order)),
        keywords={},
        outputs=(msgspec.structs.replace(value, name=name, shape=shape),),
    )
