"""Which values may lie in the memory of a concatenation from the beginning, so that joining copies
nothing."""

from __future__ import annotations

from typing import NamedTuple

from golow.lower.graph import Graph, Node
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.fused import Fused
from golow.lower.rewriting import Links, result

# Nodes between a part and the concatenation, whose whole memory the part would hold until then.
NEAR = 12


class Home(NamedTuple):
    """A place in another value's memory: from this index on, along an axis."""

    whole: str
    axis: int
    start: int


def homes(graph: Graph) -> dict[str, Home]:
    """Maps values to their places. A concatenation whose parts are neighbours in a later one, as
    in a block of DenseNet, is a range of it. A group of functions writes where it will be joined.
    """
    links = Links(graph)
    joined = [(p, node, Concatenate.of(node)) for p, node in enumerate(graph.nodes)]
    found: dict[str, Home] = {}
    later: list[tuple[str, Concatenate]] = []
    for position, node, operator in reversed(joined):
        if operator is None or not result(node):
            continue
        name = result(node)
        home = next((h for h in (_range(operator, *other, links) for other in later) if h), None)
        if home is not None and name not in links.returned:
            outer = found.get(home.whole)
            if outer is not None:
                home = Home(outer.whole, home.axis, outer.start + home.start)
            found[name] = home
        later.append((name, operator))
        _give_parts(found, links, position, name, operator)
    return found


def _range(operator: Concatenate, whole: str, later: Concatenate, links: Links) -> Home | None:
    """Where the parts of a concatenation are neighbours in a later one."""
    if operator.axis != later.axis:
        return None
    start, count = 0, len(operator.parts)
    for first in range(len(later.parts) - count + 1):
        if later.parts[first : first + count] == operator.parts:
            return Home(whole, operator.axis, start)
        start += links.values[later.parts[first].name].shape[operator.axis]
    return None


def _give_parts(
    found: dict[str, Home], links: Links, position: int, name: str, operator: Concatenate
) -> None:
    """Give every group of functions that is one of the parts its place."""
    outer = found.get(name, Home(name, operator.axis, 0))
    start = outer.start
    for part in operator.parts:
        maker = links.maker.get(part.name)
        if maker is not None and _may_lie(links, links.nodes[maker], part.name, position - maker):
            found[part.name] = Home(outer.whole, operator.axis, start)
        start += links.values[part.name].shape[operator.axis]


def _may_lie(links: Links, maker: Node, name: str, distance: int) -> bool:
    """Whether a part can be written where it will be joined."""
    return Fused.of(maker) is not None and distance <= NEAR and name not in links.returned
