"""The first passes of every graph: copy propagation over identities, and dead code elimination."""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, Node, Pass, Ref
from golow.lower.ir.rewriting import changes_in_place, with_names


def drop_identities(graph: Graph) -> Graph:
    """Remove operations that return their first argument unchanged: detach, alias, and dropout in
    inference."""
    renamed: dict[str, str] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node = with_names(node, renamed)
        if _is_identity(node):
            source, result = node.arguments[0], node.outputs[0]
            assert isinstance(source, Ref) and result is not None  # noqa: S101
            renamed[result.name] = source.name
        else:
            nodes.append(node)
    outputs = tuple(
        msgspec.structs.replace(item, name=renamed.get(item.name, item.name))
        for item in graph.outputs
    )
    return msgspec.structs.replace(graph, nodes=tuple(nodes), outputs=outputs)


def eliminate_dead_code(graph: Graph) -> Graph:
    """Remove nodes whose values nothing reads.

    In-place operations stay: their memory may be read under another name. A buffer of which only
    the new content counts stays too, and a parameter of which only the gradient does: a level keeps
    them in their place.
    """
    needed = {item.name for item in graph.outputs}
    changed = {(item.kind, item.target) for item in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        read = any(value is not None and value.name in needed for value in node.outputs)
        if read or changes_in_place(node):
            needed.update(node.references())
            kept.append(node)
    inputs = tuple(
        item
        for item in graph.inputs
        if item.value.name in needed
        or item.kind in ("input", "target")
        or (item.kind == "buffer" and ("buffer", item.target) in changed)
        or (item.kind == "parameter" and ("gradient", item.target) in changed)
    )
    return msgspec.structs.replace(graph, inputs=inputs, nodes=tuple(reversed(kept)))


CLEAN_UP: tuple[Pass, ...] = (drop_identities, eliminate_dead_code)


def _is_identity(node: Node) -> bool:
    if node.op in ("aten.detach.default", "aten.alias.default"):
        return True
    return node.op == "aten.dropout.default" and node.arguments[2] is False
