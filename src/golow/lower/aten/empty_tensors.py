"""Elimination of empty tensors. Networks for several configurations split a tensor into parts of
which one may be empty, and join them again: rotary positions of all or of some channels of a head,
tokens with or without registers."""

from __future__ import annotations

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Names, changes_in_place, result, rewritten
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.expand import Expand
from golow.lower.operators.fill import Fill
from golow.lower.operators.linear import Linear
from golow.lower.operators.matrix_product import MatrixProduct
from golow.lower.operators.pad import Pad
from golow.lower.operators.reduce import Reduce


def leave_out_empty(graph: Graph) -> Graph:
    """Join without empty parts; let what is computed of nothing be the number that it is, and what
    has no elements be computed of nothing."""
    if any(changes_in_place(node) for node in graph.nodes):
        return graph
    values, names = graph.values(), Names(graph)
    empty = {name for name, value in values.items() if 0 in value.shape}
    if not empty:
        return graph
    replaced: dict[int, tuple[Node, ...]] = {}
    renamed: dict[str, str] = {}
    for position, node in enumerate(graph.nodes):
        if len(node.outputs) != 1 or node.outputs[0] is None:
            continue
        if result(node) in empty:
            replaced[position] = _filled(node, node.outputs[0], 0.0)
        elif empty.intersection(node.references()):
            new = _of_empty(node, node.outputs[0], empty, names)
            if not new:
                renamed[result(node)] = _only_part(node, empty, renamed)
            replaced[position] = new
    return eliminate_dead_code(rewritten(graph, replaced, renamed))


def _of_empty(node: Node, output: Value, empty: set[str], names: Names) -> tuple[Node, ...]:
    """Nodes that replace one that reads something empty; none if it is its only part."""
    record = record_of(node)
    match record:
        case Concatenate():
            parts = tuple(part for part in record.parts if part.name not in empty)
            if len(parts) == 1:
                return ()
            return (written(node, msgspec.structs.replace(record, parts=parts)),)
        case Pad():
            return _spread(node, output, record.value, names)
        case Linear(bias=Ref() as bias, residual=None, activation=None):
            return (written(node, Expand(x=bias, shape=output.shape)),)
        case (
            Reduce(function="sum")
            | MatrixProduct(added=None)
            | Linear(bias=None, residual=None, activation=None)
        ):  # a sum of no products
            return _spread(node, output, 0.0, names)
    return (node,)


def _only_part(node: Node, empty: set[str], renamed: dict[str, str]) -> str:
    joined = Concatenate.of(node)
    names = () if joined is None else (part.name for part in joined.parts)
    (name,) = (name for name in names if name not in empty)
    return renamed.get(name, name)


def _spread(node: Node, output: Value, number: float, names: Names) -> tuple[Node, ...]:
    """A number in every place of the node's result."""
    shape = (1,) * len(output.shape)
    one = msgspec.structs.replace(output, name=names.free(f"{output.name}.one"), shape=shape)
    wide = written(node, Expand(x=Ref(name=one.name), shape=output.shape))
    return (*_filled(node, one, number), msgspec.structs.replace(wide, absorbed=()))


def _filled(node: Node, output: Value, number: float) -> tuple[Node, ...]:
    fill = Fill(shape=output.shape, value=number, dtype=output.dtype)
    return (written(node, fill, outputs=(output,)),)
