"""Layout propagation through concatenations: joins tensors in the order in which the whole is
read."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from golow.lower.analysis.ranges import Ranges, View, of_part, seen
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import record_of, written
from golow.lower.ir.rewriting import Links, Names, absorbing, result, rewritten
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.permute import Permute
from golow.lower.operators.reshape import Reshape


def join_as_read(graph: Graph) -> Graph:
    """Move the permutations and the reshapes after them from a concatenation to its parts, if
    nothing else reads what is between and the parts stay ranges of an axis.

    A reshape after a permutation joins axes that are not adjacent in memory: the whole would be
    copied once more after it was joined. Each part is copied to its place in any case, or written
    there.
    """
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        operator = Concatenate.of(node)
        value = node.outputs[0] if node.outputs else None
        if operator is None or value is None:
            continue
        moves = _moves(links, value, operator)
        if moves:
            replaced |= dict.fromkeys((move.position for move in moves), ())
            replaced[position] = _moved(links, names, node, operator, moves)
    return rewritten(graph, replaced)


class _Move(NamedTuple):
    """A view of a concatenation, its node's position, and where it shows the parts."""

    position: int
    view: View
    ranges: Ranges


def _moves(links: Links, value: Value, operator: Concatenate) -> list[_Move]:
    """The views after a concatenation up to the last reshape that follows a permutation."""
    sizes = tuple(links.values[part.name].shape[operator.axis] for part in operator.parts)
    ranges: Ranges | None = Ranges(value.shape, operator.axis, sizes)
    found: list[_Move] = []
    last, turned = 0, False
    name = value.name
    while (reader := links.only_reader(name)) is not None:
        view = record_of(links.nodes[reader])
        if not isinstance(view, Reshape | Permute) or ranges is None:
            break
        ranges = seen(view, ranges)
        if ranges is None:
            break
        name = result(links.nodes[reader])
        found.append(_Move(reader, view, ranges))
        turned = turned or isinstance(view, Permute)
        if turned and isinstance(view, Reshape):
            last = len(found)
    return found[:last]


def _moved(
    links: Links, names: Names, node: Node, operator: Concatenate, moves: list[_Move]
) -> tuple[Node, ...]:
    """The views of each part, and the concatenation, which makes what the last view made."""
    new: list[Node] = []
    parts: list[Ref] = []
    made = links.values[result(links.nodes[moves[-1].position])]
    for index, part in enumerate(operator.parts):
        for move in moves:
            view = msgspec.structs.replace(of_part(move.view, move.ranges, index), x=part)
            shape = move.ranges.part(move.ranges.sizes[index])
            name = names.free(f"{made.name}_part")
            value = Value(name=name, shape=shape, dtype=made.dtype)
            mover = msgspec.structs.replace(links.nodes[move.position], absorbed=())
            new.append(written(mover, view, name=name, outputs=(value,)))
            part = Ref(name=name)
        parts.append(part)
    whole = Concatenate(parts=tuple(parts), axis=moves[-1].ranges.axis)
    absorbed = absorbing(node, *(links.nodes[move.position] for move in moves))
    return (*new, written(node, whole, outputs=(made,), absorbed=absorbed))
