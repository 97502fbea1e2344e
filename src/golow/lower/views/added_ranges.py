"""Sums with a term that was padded with zeros: it is added to the range that it covers.

Tokens of an image beside a token of its class are the pattern: what convolutions make of the image
is padded by the class token, and added to what attention makes of all (CoaT, Xu et al. 2021,
arXiv:2104.06399). The padded term would be written and read once more.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import msgspec

from golow.lower.fuse.pointwise_fusion import KINDS
from golow.lower.fuse.products import read_through_views
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, absorbing, result, rewritten
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.pad import Pad
from golow.lower.operators.slice import Slice
from golow.lower.operators.softmax import Softmax

COMPUTE_WITHIN = {*KINDS, Softmax.op()}  # readers with which the sum is one kernel


class _Term(NamedTuple):
    """A term that is added to a range of an axis of x, and the position of its padding."""

    x: Ref
    added: Ref
    axis: int
    start: int
    position: int


def add_to_ranges(graph: Graph) -> Graph:
    """Make x + pad(y) a concatenation of ranges of x, to one of which y is added, unless functions
    of elements read it, which are one kernel with the sum."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        term = _padded_term(links, node)
        if term is not None:
            replaced[term.position] = ()
            replaced[position] = _Writer(links, names, position).joined(term)
    return rewritten(graph, replaced) if replaced else graph


def _padded_term(links: Links, node: Node) -> _Term | None:
    add = Binary.of(node)
    if add is None or add.function != "add" or add.activation is not None:
        return None
    _, readers = read_through_views(links, result(node))
    if any(links.nodes[reader].op in COMPUTE_WITHIN for reader in readers):
        return None
    shape = links.values[result(node)].shape
    for x, padded in ((add.a, add.b), (add.b, add.a)):
        if not isinstance(x, Ref) or links.values[x.name].shape != shape:
            continue
        found = _of_one_axis(links, x, padded, shape)
        if found is not None:
            return found
    return None


def _of_one_axis(links: Links, x: Ref, padded: Ref | float, shape: tuple[int, ...]) -> _Term | None:
    """The term if it has the sum's shape, and zeros along one axis that nothing else reads."""
    position = links.made_by(padded, Pad.op())
    pad = None if position is None else Pad.of(links.nodes[position])
    if pad is None or position is None or not isinstance(padded, Ref) or pad.value != 0:
        return None
    sides = list(zip(pad.before, pad.after, strict=True))
    axes = [axis for axis, pair in enumerate(sides) if any(pair)]
    alone = links.only_reader(padded.name) is not None and links.values[padded.name].shape == shape
    if not alone or len(axes) != 1 or min(sides[axes[0]]) < 0:
        return None
    return _Term(x, pad.x, axes[0], pad.before[axes[0]], position)


class _Writer:
    """Writes the nodes in place of the sum at a position."""

    def __init__(self, links: Links, names: Names, position: int) -> None:
        self._links, self._names, self._node = links, names, links.nodes[position]
        self._made: list[Node] = []

    def joined(self, term: _Term) -> tuple[Node, ...]:
        """The ranges of x before, at and after the term, and what joins them."""
        shape = self._links.values[term.x.name].shape
        size = self._links.values[term.added.name].shape[term.axis]
        cuts = (0, term.start, term.start + size, shape[term.axis])
        parts: list[Ref] = []
        for start, stop in pairwise(cuts):
            if start == stop:
                continue
            part = (*shape[: term.axis], stop - start, *shape[term.axis + 1 :])
            cut = Slice(x=term.x, axis=term.axis, start=start, stop=stop, step=1)
            parts.append(self._add(cut, part))
            if start == term.start:
                parts[-1] = self._add(Binary(function="add", a=parts[-1], b=term.added), part)
        whole = Concatenate(parts=tuple(parts), axis=term.axis)
        absorbed = absorbing(self._node, self._links.nodes[term.position])
        return (*self._made, written(self._node, whole, absorbed=absorbed))

    def _add(self, operator: Operator, shape: tuple[int, ...]) -> Ref:
        like = self._links.values[result(self._node)]
        made = Value(name=self._names.free(f"{like.name}_range"), shape=shape, dtype=like.dtype)
        beside = msgspec.structs.replace(self._node, absorbed=())
        self._made.append(written(beside, operator, name=made.name, outputs=(made,)))
        return Ref(name=made.name)
