"""Parameters of layers that are computed as one: those that a weight joins, and the value whose
ranges their gradients are."""

from __future__ import annotations

from typing import NamedTuple

from golow.lower.analysis.liveness import gradient_places
from golow.lower.ir.graph import Graph
from golow.lower.ir.rewriting import Links, result
from golow.lower.operators.joined_weight import JoinedWeight
from golow.lower.operators.slice import Slice


class JoinedParameters(NamedTuple):
    """weight: the value that joins them. targets: theirs, in order. gradient: the value whose
    ranges their gradients are, one after the other; empty if there is none."""

    weight: str
    targets: tuple[str, ...]
    gradient: str


class _Range(NamedTuple):
    """Elements of another value that are adjacent in memory, along an axis."""

    whole: str
    start: int
    stop: int


def joined_parameters(graph: Graph) -> tuple[JoinedParameters, ...]:
    """The parameters that each weight of a training graph joins."""
    parameters = {i.value.name: i.target for i in graph.inputs if i.kind == "parameter"}
    links, found = Links(graph), []
    ranges = _ranges(graph, links)
    for node in graph.nodes:
        operator = JoinedWeight.of(node)
        if operator is not None and all(part.name in parameters for part in operator.parts):
            targets = tuple(parameters[part.name] for part in operator.parts)
            found.append(JoinedParameters(result(node), targets, _whole(targets, ranges)))
    return tuple(found)


def _ranges(graph: Graph, links: Links) -> dict[str, _Range]:
    """The gradients that are ranges of another value, by the parameters' targets."""
    found = {}
    for name, target in gradient_places(graph).items():
        maker = links.maker.get(name)
        cut = Slice.of(links.nodes[maker]) if maker is not None else None
        if cut is None or cut.step != 1:
            continue
        if all(size == 1 for size in links.values[cut.x.name].shape[: cut.axis]):
            found[target] = _Range(cut.x.name, cut.start, cut.stop)
    return found


def _whole(targets: tuple[str, ...], ranges: dict[str, _Range]) -> str:
    """The value of which these gradients are all ranges, in order and without gaps."""
    if not ranges.keys() >= set(targets):
        return ""
    parts = [ranges[target] for target in targets]
    first, *others = parts
    adjacent = all(part.start == before.stop for before, part in zip(parts, others, strict=False))
    alike = all(part.whole == first.whole for part in others)
    return first.whole if first.start == 0 and adjacent and alike else ""
