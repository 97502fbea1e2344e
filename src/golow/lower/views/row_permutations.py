"""Permutation hoisting: moves permutations of rows before linear layers that copy their input
anyway: windows of Swin are stored as an image again in the copy that joins the heads."""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, result, rewritten
from golow.lower.operators.linear import Linear
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.roll import Roll

Moving = Reshape | Permute | Roll


def order_rows_first(graph: Graph) -> Graph:
    """Move what only changes the order of a linear layer's rows from its result to its operand, if
    the operand joins axes that are not adjacent in memory and nothing else reads them between."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        layer = Linear.of(node)
        if layer is None or layer.residual is not None or not node.outputs[0]:
            continue
        moves = _moves_of_rows(links, node.outputs[0])
        if any(not isinstance(move, Reshape) for _, move in moves) and _is_copied(links, layer.x):
            replaced |= dict.fromkeys((reader for reader, _ in moves), ())
            replaced[position] = _moved(links, node, layer, moves)
    return rewritten(graph, replaced)


def _moves_of_rows(links: Links, value: Value) -> list[tuple[int, Moving]]:
    """The operations after a value, each the only reader of what is before it, that leave the last
    axis as it is; with their positions."""
    found: list[tuple[int, Moving]] = []
    width, name = value.shape[-1], value.name
    while (reader := links.only_reader(name)) is not None:
        move, name = record_of(links.nodes[reader]), result(links.nodes[reader])
        if not isinstance(move, Moving) or not name or not _keeps_last(links, move, name, width):
            break
        found.append((reader, move))
    return found


def _keeps_last(links: Links, move: Moving, name: str, width: int) -> bool:
    last = len(links.values[move.x.name].shape) - 1
    if isinstance(move, Permute):
        return move.order[-1] == last
    if isinstance(move, Roll):
        return last not in move.axes
    return links.values[name].shape[-1:] == (width,)


def _is_copied(links: Links, x: Ref) -> bool:
    """True if the last axis is joined of several that were permuted."""
    join = links.made_by(x, Reshape.op())
    if join is None:
        return False
    reshape = Reshape.of(links.nodes[join])
    assert reshape is not None  # noqa: S101 - as its name states
    parts = links.values[reshape.x.name].shape
    permuted = links.made_by(reshape.x, Permute.op()) is not None
    return permuted and parts[-1:] != links.values[x.name].shape[-1:]


def _moved(
    links: Links, node: Node, layer: Linear, moves: list[tuple[int, Moving]]
) -> tuple[Node, ...]:
    """The moves of the operand's rows, and the layer, which makes what the last of them made."""
    x = links.values[layer.x.name]
    new: list[Node] = []
    name = x.name
    for position, move in moves:
        moved = links.nodes[position]
        old = links.values[result(moved)]
        value = Value(name=f"{old.name}_first", shape=(*old.shape[:-1], x.shape[-1]), dtype=x.dtype)
        operator = msgspec.structs.replace(move, x=Ref(name=name))
        if isinstance(operator, Reshape):
            operator = msgspec.structs.replace(operator, shape=value.shape)
        new.append(written(moved, operator, outputs=(value,)))
        name = value.name
    made = links.values[result(links.nodes[moves[-1][0]])]
    linear = msgspec.structs.replace(layer, x=Ref(name=name))
    return (*new, written(node, linear, outputs=(made,)))
