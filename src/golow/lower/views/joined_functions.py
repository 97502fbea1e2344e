"""Concatenation sinking: computes functions of elements before parts are joined, where the parts
are ranges of values, or functions of ranges: each part is then written where it is joined.

A rotary embedding (Su et al. 2021, "RoFormer") is the pattern: x cos + cat(-x2, x1) sin becomes
cat(x1 cos1 - x2 sin1, x2 cos2 + x1 sin2), one kernel and no copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, Names, absorbing, rewritten, with_names
from golow.lower.operators.activation import Activate
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.slice import Slice

FUNCTIONS = {Activate.op(), Binary.op(), Pointwise.op()}
MOST_PARTS = 4
MOST_ROUNDS = 8  # functions that follow one another after a concatenation


def compute_before_joining(graph: Graph) -> Graph:
    """Exchange concatenations of ranges with the functions that alone read them; join at once what
    is joined twice along an axis."""
    for _ in range(MOST_ROUNDS):
        made = _Round(graph).rewritten()
        if made is None:
            return _joined_at_once(graph)
        graph = made
    return _joined_at_once(graph)


class _Range(NamedTuple):
    """A part of a concatenation. axis: counted from the last one, which is 1."""

    axis: int
    start: int
    stop: int


class _Round:
    """One function after each concatenation."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.links, self.names = graph, Links(graph), Names(graph)
        self._new: list[Node] = []
        self._used: set[int] = set()
        self._slices: dict[tuple[str, _Range], str] = {}

    def rewritten(self) -> Graph | None:
        """The graph without the functions that were exchanged; None if there are none."""
        replaced: dict[int, tuple[Node, ...]] = {}
        for position, node in enumerate(self.graph.nodes):
            joined = self._joined_before(position, node)
            if joined is not None:
                self._new = []
                last = self._exchanged(position, node, joined)
                replaced[position] = (*self._new, last)
        return eliminate_dead_code(rewritten(self.graph, replaced)) if replaced else None

    def _joined_before(self, position: int, node: Node) -> Node | None:
        """The concatenation of ranges that this function alone reads."""
        if node.op not in FUNCTIONS or position in self._used:
            return None
        for name in node.references():
            maker = self.links.maker.get(name)
            joined = None if maker is None else Concatenate.of(self.links.nodes[maker])
            if joined is None or maker is None or self.links.only_reader(name) != position:
                continue
            same = self._shape(name) == self._shape(_result(node).name)
            if same and 1 < len(joined.parts) <= MOST_PARTS and self._are_ranges(joined, maker):
                return self.links.nodes[maker]
        return None

    def _are_ranges(self, joined: Concatenate, position: int) -> bool:
        return all(self._is_range(part.name, position) for part in joined.parts)

    def _is_range(self, name: str, reader: int) -> bool:
        """True if the value is a range, or a function of ranges that one node alone reads."""
        maker = self.links.maker.get(name)
        if maker is None:
            return False
        node = self.links.nodes[maker]
        if Slice.of(node) is not None:
            return True
        if node.op not in FUNCTIONS or self.links.only_reader(name) != reader:
            return False
        wide = [n for n in node.references() if self._shape(n) == self._shape(name)]
        return bool(wide) and all(self._is_range(n, maker) for n in wide)

    def _exchanged(self, position: int, node: Node, before: Node) -> Node:
        """Emit the function of each part; return what joins them."""
        joined, whole = Concatenate.of(before), _result(before).name
        assert joined is not None  # noqa: S101 - as _joined_before states
        axis, start, parts = len(self._shape(whole)) - joined.axis, 0, []
        for part in joined.parts:
            stop = start + self._shape(part.name)[joined.axis]
            given = {whole: part.name}
            parts.append(self._of_range(position, node, _Range(axis, start, stop), given))
            start = stop
        operator = msgspec.structs.replace(joined, parts=tuple(Ref(name=name) for name in parts))
        return written(before, operator, name=node.name, outputs=node.outputs)

    def _of_range(self, position: int, node: Node, of: _Range, given: dict[str, str]) -> str:
        """Emit a function for a range of its elements; given: values that are there. Return the
        name of what it makes."""
        self._used.add(position)
        renamed = {n: given.get(n) or self._sliced(n, position, of) for n in node.references()}
        value = _result(node)
        shape = list(value.shape)
        shape[-of.axis] = of.stop - of.start
        name = self.names.free(f"{value.name}.part")
        made = msgspec.structs.replace(value, name=name, shape=tuple(shape))
        copied = msgspec.structs.replace(with_names(node, renamed), name=name, outputs=(made,))
        self._new.append(copied)
        return name

    def _sliced(self, name: str, reader: int, of: _Range) -> str:
        """The name of a range of a value; the value's own where all share it."""
        shape = self._shape(name)
        if len(shape) < of.axis or shape[-of.axis] == 1:
            return name
        maker = self.links.maker.get(name)
        if maker is not None and self._is_computed_for(maker, name, reader):
            return self._of_range(maker, self.links.nodes[maker], of, {})
        if (name, of) not in self._slices:
            self._slices[name, of] = self._emit_slice(name, reader, of)
        return self._slices[name, of]

    def _is_computed_for(self, maker: int, name: str, reader: int) -> bool:
        function = self.links.nodes[maker].op in FUNCTIONS
        return function and self.links.only_reader(name) == reader

    def _emit_slice(self, name: str, reader: int, of: _Range) -> str:
        value = self.links.values[name]
        axis = len(value.shape) - of.axis
        shape = (*value.shape[:axis], of.stop - of.start, *value.shape[axis + 1 :])
        made = Value(name=self.names.free(f"{name}.part"), shape=shape, dtype=value.dtype)
        part = Slice(x=Ref(name=name), axis=axis, start=of.start, stop=of.stop, step=1)
        like = msgspec.structs.replace(self.links.nodes[reader], absorbed=())
        self._new.append(written(like, part, name=made.name, outputs=(made,)))
        return made.name

    def _shape(self, name: str) -> tuple[int, ...]:
        return self.links.values[name].shape


def _joined_at_once(graph: Graph) -> Graph:
    """The graph with the parts of a concatenation in place of it where another one along its axis
    is its only reader."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        joined = Concatenate.of(node)
        if joined is None:
            continue
        inner = [_inner(links, part, position, joined.axis) for part in joined.parts]
        if any(found is not None for found in inner):
            parts = tuple(_spread(links, joined, inner))
            absorbed = absorbing(node, *(links.nodes[at] for at in inner if at is not None))
            operator = msgspec.structs.replace(joined, parts=parts)
            replaced[position] = (written(node, operator, absorbed=absorbed),)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _inner(links: Links, part: Ref, reader: int, axis: int) -> int | None:
    """The position of a concatenation along the same axis that is read there alone."""
    maker = links.maker.get(part.name)
    joined = None if maker is None else Concatenate.of(links.nodes[maker])
    alone = links.only_reader(part.name) == reader
    return maker if joined is not None and joined.axis == axis and alone else None


def _spread(links: Links, joined: Concatenate, inner: list[int | None]) -> Iterator[Ref]:
    for part, position in zip(joined.parts, inner, strict=True):
        found = None if position is None else Concatenate.of(links.nodes[position])
        yield from (part,) if found is None else found.parts


def _result(node: Node) -> Value:
    value = node.outputs[0]
    assert value is not None  # noqa: S101 - a function has one result
    return value
