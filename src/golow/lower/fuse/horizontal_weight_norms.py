"""Horizontal fusion of weight normalisation: computes the weights of several layers at once, and
their gradients. A weight has few elements: a launch takes longer than to read and write them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from golow.lower.ir.graph import Graph, Node
from golow.lower.ir.operator import Operator, record_of, written
from golow.lower.ir.rewriting import Links, absorbing, rewritten
from golow.lower.operators.weight_norm import WeightNorm, WeightNormBackward

MOST = 16  # layers at once: until the last one's gradient is there, those of all others are kept


def join_weight_norms(graph: Graph) -> Graph:
    """Compute the weights of up to `MOST` layers where the first of them is, and their gradients
    where the last of them is."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for group in _of_parameters(graph):
        replaced |= _joined(links, group, WeightNorm, group[0])
    for group in _read_later(links):
        replaced |= _joined(links, group, WeightNormBackward, group[-1])
    return rewritten(graph, replaced) if replaced else graph


def _of_parameters(graph: Graph) -> Iterator[list[int]]:
    """Positions of weights that are computed from inputs of the graph alone, which are there from
    the beginning."""
    given = {item.value.name for item in graph.inputs}
    found = [
        position
        for position, node in enumerate(graph.nodes)
        if node.op == WeightNorm.op() and given.issuperset(node.references())
    ]
    yield from (found[first : first + MOST] for first in range(0, len(found), MOST))


def _read_later(links: Links) -> Iterator[list[int]]:
    """Positions of gradients that nothing reads before the last one of the group is there."""
    group: list[int] = []
    first_read: float = math.inf
    for position, node in enumerate(links.nodes):
        if node.op != WeightNormBackward.op():
            continue
        if len(group) == MOST or first_read < position:
            yield group
            group, first_read = [], math.inf
        group.append(position)
        made = [value.name for value in node.outputs if value is not None]
        first_read = min([first_read, *(p for name in made for p in links.readers[name])])
    if group:
        yield group


def _joined(
    links: Links, group: Sequence[int], kind: type[Operator], place: int
) -> dict[int, tuple[Node, ...]]:
    """The nodes of a group, each of one layer, as one in that place."""
    if len(group) < 2:
        return {}
    nodes = [links.nodes[position] for position in group]
    records = [record_of(node) for node in nodes]
    fields = {
        name: tuple(ref for record in records for ref in getattr(record, name))
        for name in kind.__struct_fields__
    }
    outputs = tuple(node.outputs[index] for index in (0, 1) for node in nodes)
    absorbed = absorbing(nodes[0], *nodes[1:])
    made = written(nodes[0], kind(**fields), outputs=outputs, absorbed=absorbed)
    return {**dict.fromkeys(group, ()), place: (made,)}
