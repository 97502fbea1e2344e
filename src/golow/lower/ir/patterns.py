"""Fusions as declared patterns: what a rule looks for, and what replaces it.

A `Pattern` is a small tree. ``node("layer", Convolution, activation=None, alone=True)`` matches a
convolution without an activation whose result has only one reader. A field can be a pattern, too:
the node that makes its value must match it. `fuse` finds the matches of a rule in a graph and
replaces them. The idea is tinygrad's (``tinygrad/codegen/simplify.py``, ``PatternMatcher``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Kind, Operator, record_of, written
from golow.lower.ir.rewriting import Links, absorbing, result, rewritten


class Pattern(NamedTuple):
    """A node of one of these kinds.

    fields: for each argument the value it must equal, or the pattern that the node making it must
    match. alone: one node reads the result, and it is not an output of the graph. commutes: the
    fields ``a`` and ``b`` may also be swapped. where: a further condition.
    """

    name: str
    kinds: tuple[type[Operator], ...]
    fields: Mapping[str, Any]
    alone: bool = False
    commutes: bool = False
    where: Callable[[NodeMatch], bool] | None = None


def node(
    name: str,
    *kinds: type[Operator],
    alone: bool = False,
    commutes: bool = False,
    where: Callable[[NodeMatch], bool] | None = None,
    **fields: Any,
) -> Pattern:
    """The pattern of a node; matches hold the node under this name."""
    return Pattern(name, kinds, fields, alone, commutes, where)


class NodeMatch(NamedTuple):
    """A node that matched: its position in the graph, the node and its arguments.

    values: every value of the graph. alone: as in `Pattern`. swapped: ``a`` and ``b`` are swapped
    relative to the pattern.
    """

    position: int
    node: Node
    arguments: Operator
    values: Mapping[str, Value]
    alone: bool
    swapped: bool = False

    def shape(self, reference: Ref) -> tuple[int, ...]:
        """Shape of a value of the graph."""
        return self.values[reference.name].shape

    @property
    def output(self) -> Value:
        """The node's first result; LookupError if it has none."""
        value = self.node.outputs[0]
        if value is None:
            raise LookupError(f"{self.node.name} has no first result")
        return value


@dataclass(frozen=True)
class Match:
    """The nodes that matched, by their names in the pattern."""

    found: Mapping[str, NodeMatch]

    def __getitem__(self, name: str) -> NodeMatch:
        return self.found[name]

    def arguments(self, name: str, kind: type[Kind]) -> Kind:
        """The arguments of a matched node of that kind; LookupError if it is of another one."""
        arguments = self.found[name].arguments
        if isinstance(arguments, kind):
            return arguments
        raise LookupError(f"{name} is a {type(arguments).__name__}")


class Fusion(NamedTuple):
    """One operator that replaces matched nodes.

    base: the node whose name, layer and phase it keeps. takes: further nodes that it replaces. at:
    the node whose position it takes. outputs: its results. before: new nodes to insert before it.
    """

    operator: Operator
    base: str
    takes: Sequence[str]
    at: str
    outputs: tuple[Value | None, ...]
    before: tuple[Node, ...] = ()


class Rule(NamedTuple):
    """Patterns, and a function from a match to its fusions; none leave the nodes as they are."""

    patterns: Sequence[Pattern]
    replace: Callable[[Match], Sequence[Fusion]]


def fuse(graph: Graph, rule: Rule) -> Graph:
    """Apply the rule from the first node to the last. A node takes part in one match. If several
    match at a node, the one whose other nodes come last is used: the other arguments of the fused
    node are then already computed."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position in range(len(graph.nodes)):
        found = [m for pattern in rule.patterns for m in _matches(links, pattern, position)]
        free = [m for m in found if not any(f.position in replaced for f in m.found.values())]
        if not free:
            continue
        match = max(free, key=lambda m: sorted(f.position for f in m.found.values()))
        for fusion in rule.replace(match):
            gone = {match[name].position for name in (fusion.base, *fusion.takes)}
            replaced |= dict.fromkeys(gone, ())
            replaced[match[fusion.at].position] = (*fusion.before, _fused(match, fusion))
    return rewritten(graph, replaced)


def _fused(match: Match, fusion: Fusion) -> Node:
    base = match[fusion.base].node
    taken = [match[name].node for name in fusion.takes]
    return written(base, fusion.operator, outputs=fusion.outputs, absorbed=absorbing(base, *taken))


def _matches(links: Links, pattern: Pattern, position: int) -> Iterator[Match]:
    """Every match of the pattern at the position."""
    this = links.nodes[position]
    arguments = record_of(this) if this.op in {kind.op() for kind in pattern.kinds} else None
    value = this.outputs[0] if this.outputs else None
    if arguments is None:
        return
    alone = value is not None and links.only_reader(value.name) is not None
    if pattern.alone and not alone:
        return
    for swapped in (False, True) if pattern.commutes else (False,):
        own = _swapped(arguments) if swapped else arguments
        if own is None:
            continue
        found = NodeMatch(position, this, own, links.values, alone, swapped)
        if pattern.where is not None and not pattern.where(found):
            continue
        for makers in _fields_match(links, pattern, own):
            yield Match({pattern.name: found, **makers})


def _fields_match(
    links: Links, pattern: Pattern, arguments: Operator
) -> Iterator[dict[str, NodeMatch]]:
    """Every match of the fields, with the nodes that make them."""
    choices: list[list[Match]] = []
    for field, wanted in pattern.fields.items():
        given = getattr(arguments, field)
        if not isinstance(wanted, Pattern):
            if given != wanted:
                return
            continue
        maker = links.maker.get(given.name) if isinstance(given, Ref) else None
        if maker is None or result(links.nodes[maker]) != given.name:
            return
        choices.append(list(_matches(links, wanted, maker)))
    for chosen in product(*choices):
        yield {name: found for match in chosen for name, found in match.found.items()}


def _swapped(arguments: Operator) -> Operator | None:
    """The operator with ``a`` and ``b`` swapped; None if ``b`` is a number."""
    fields = msgspec.structs.asdict(arguments)
    if not isinstance(fields["b"], Ref):
        return None
    return msgspec.structs.replace(arguments, a=fields["b"], b=fields["a"])
