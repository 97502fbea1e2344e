"""Pointwise fusion: makes one operation of functions of elements that follow one another, so that
what is between them never reaches memory. A function that stands alone is a group of one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from golow.lower.analysis.constant_values import constant_values
from golow.lower.analysis.liveness import last_reads, state_outputs
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import written
from golow.lower.ir.rewriting import Links, absorbing, with_names
from golow.lower.operators.activation import Activate, ActivateBackward
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.fused import Fused, encode_part, input_name
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.quantize import Quantize

MOST_INPUTS = 12
MOST_PARTS = 48
# Nodes between a function and its reader: what the first reads must be kept until the group runs.
NEAR = 8
# Share of a result up to which what a function reads takes no memory that counts.
SMALL = 1 / 4
KINDS = {kind.op() for kind in (Activate, ActivateBackward, BatchNormInference, Binary, Pointwise)}
GROUPED = {*KINDS, Quantize.op()}
"""Functions that may be in a group: those of floats, and one that makes other numbers of them."""


def group_elements(graph: Graph, joins: Callable[[Node], bool] = lambda node: True) -> Graph:
    """Put functions of elements that read one another into a `Fused` node.

    A function joins the group of what it reads if both are computed at the same indices, or if the
    group is smaller, is repeated, and nothing else reads it, and if few nodes are between them.
    What others read of a group is one of its results. What depends on weights alone is in separate
    groups, which need not run in every iteration. Parts of a concatenation that are computed at
    the same indices are in one group, too. Groups never wait for a node that waits for them, and
    what reads an input stays before the node that changes it. joins: whether a function may be in
    a group at all.
    """
    groups = _Groups(graph, joins)
    for position, node in enumerate(graph.nodes):
        if groups.is_function(node):
            for name in node.references():
                groups.join(name, position)
    for node in graph.nodes:
        joined = Concatenate.of(node)
        if joined is not None:
            for one, other in pairwise(joined.parts):
                groups.join_beside(one.name, other.name)
    return groups.rewritten()


def _is_function(node: Node) -> bool:
    """True if it computes elements; adding one to an integer counts batches."""
    if node.op not in GROUPED or len(node.outputs) != 1 or node.outputs[0] is None:
        return False
    return node.op != Binary.op() or node.outputs[0].dtype != "int64"


class _Groups:
    """Which nodes are in one group. A group has the position of its last node so far."""

    def __init__(self, graph: Graph, joins: Callable[[Node], bool]) -> None:
        self.graph, self.nodes, self._joins = graph, graph.nodes, joins
        self._values = graph.values()
        self.of = list(range(len(graph.nodes)))
        self._constant = constant_values(graph)
        self.members = {position: [position] for position in range(len(graph.nodes))}
        links = Links(graph)
        self.maker, self.returned = links.maker, links.returned
        made = [
            {self.maker[name] for name in node.references() if name in self.maker}
            for node in graph.nodes
        ]
        self.readers = _inverse(made)
        # A level changes an input in place: nodes that read the old content must have run.
        self.waits = [one | other for one, other in zip(made, _old_readers(graph), strict=True)]
        self.followers = _inverse(self.waits)

    def is_function(self, node: Node) -> bool:
        """True if it computes elements and may be in a group."""
        return _is_function(node) and self._joins(node)

    def join(self, name: str, reader: int) -> None:
        """Put the maker of a value and one of its readers into one group if they may be."""
        maker = self.maker.get(name)
        if maker is None or not self.is_function(self.nodes[maker]):
            return
        first, second = self.of[maker], self.of[reader]
        if self._fit(first, second) and not self._is_between(first, second):
            self._join(first, second)

    def join_beside(self, one: str, other: str) -> None:
        """Put the makers of two values into one group if they may be: neither waits for the
        other."""
        makers = [self.maker.get(name) for name in (one, other)]
        known = [m for m in makers if m is not None and self.is_function(self.nodes[m])]
        if len(known) < 2:
            return
        first, second = sorted(self.of[position] for position in known)
        apart = not self._is_between(first, second) and not self._is_between(second, first)
        if self._fit(first, second) and apart:
            self._join(first, second)

    def _join(self, first: int, second: int) -> None:
        self.members[second] = sorted(self.members.pop(first) + self.members[second])
        for position in self.members[second]:
            self.of[position] = second

    def _fit(self, first: int, second: int) -> bool:
        if first == second:
            return False
        one, other = self.members[first], self.members[second]
        if min(other) - max(one) > NEAR and not self._may_wait(one, other):
            return False
        both = sorted(one + other)
        if len({self.nodes[position].phase for position in both}) > 1 or len(both) > MOST_PARTS:
            return False
        if len({self._value(position).name in self._constant for position in both}) > 1:
            return False
        if len(self._inputs(both)) > MOST_INPUTS:
            return False
        shape = self._shape(other)
        outside = self._read_outside(both)
        return all(self._value(position).shape == shape for position in outside)

    def _may_wait(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """True if the first group is far before the second, which alone reads its results, and what
        it reads takes no more memory in between than these would."""
        results = self._read_outside(one)
        alone = all(self.readers[position] <= {*one, *other} for position in results)
        kept = any(self._value(position).name in self.returned for position in results)
        read = [math.prod(self._values[name].shape) for name in self._inputs(one)]
        least = min(math.prod(self._value(position).shape) for position in results)
        wide = sum(elements > SMALL * least for elements in read)
        return alone and not kept and wide <= len(results)

    def _shape(self, members: Iterable[int]) -> tuple[int, ...]:
        """The indices at which a group computes: those of its last node, which has no readers in
        the group."""
        return self._value(max(members)).shape

    def _value(self, position: int) -> Value:
        value = self.nodes[position].outputs[0]
        assert value is not None  # noqa: S101 - as _is_function states
        return value

    def _read_outside(self, members: Iterable[int]) -> list[int]:
        inside = set(members)
        return [
            position
            for position in inside
            if self._value(position).name in self.returned or self.readers[position] - inside
        ]

    def _inputs(self, members: Iterable[int]) -> dict[str, None]:
        inside = set(members)
        return {
            name: None
            for position in sorted(inside)
            for name in self.nodes[position].references()
            if self.maker.get(name, -1) not in inside
        }

    def _is_between(self, first: int, second: int) -> bool:
        """True if a node outside both groups must follow the first and precede the second."""
        waiting = [p for p in self._following(first) if self.of[p] != second]
        seen: set[int] = set()
        while waiting:
            group = self.of[waiting.pop()]
            if group == second:
                return True
            if group not in seen:
                seen.add(group)
                waiting += self._following(group)
        return False

    def _following(self, group: int) -> list[int]:
        return [
            reader
            for position in self.members[group]
            for reader in self.followers[position]
            if self.of[reader] != group
        ]

    def rewritten(self) -> Graph:
        """The graph with a node for each group, in an order in which they can run."""
        done: set[int] = set()
        nodes: list[Node] = []

        def emit(group: int) -> None:
            # Groups that it waits for come first; groups do not wait for one another, so this ends.
            waiting = [group]
            while waiting:
                this = waiting[-1]
                waited = set().union(*(self.waits[position] for position in self.members[this]))
                before = {self.of[position] for position in waited} - done - {this}
                if before:
                    waiting += sorted(before, reverse=True)
                    continue
                waiting.pop()
                if this not in done:
                    done.add(this)
                    nodes.append(self._node(self.members[this]))

        for position in range(len(self.nodes)):
            last = self.members[self.of[position]][-1]
            if position == last and self.of[position] not in done:
                emit(self.of[position])
        return msgspec.structs.replace(self.graph, nodes=tuple(nodes))

    def _node(self, members: list[int]) -> Node:
        last = self.nodes[members[-1]]
        if not self.is_function(last):
            return last
        inputs = list(self._inputs(members))
        names = {name: input_name(index) for index, name in enumerate(inputs)}
        program = [encode_part(with_names(self.nodes[p], names)) for p in members]
        results = [self._value(position) for position in sorted(self._read_outside(members))]
        fused = Fused(
            inputs=tuple(Ref(name=name) for name in inputs),
            program=tuple(program),
            yields=tuple(value.name for value in results),
        )
        absorbed = absorbing(last, *(self.nodes[position] for position in members[:-1]))
        return written(last, fused, outputs=tuple(results), absorbed=absorbed)


def _inverse(waits: Sequence[set[int]]) -> list[set[int]]:
    """For each node, those that wait for it."""
    found: list[set[int]] = [set() for _ in waits]
    for position, waited in enumerate(waits):
        for other in waited:
            found[other].add(position)
    return found


def _old_readers(graph: Graph) -> list[set[int]]:
    """For each node that makes the new content of inputs, the earlier nodes that read the old one,
    or a view of it."""
    views, _ = last_reads(graph)
    changed = state_outputs(graph)
    readers: dict[str, set[int]] = defaultdict(set)
    found: list[set[int]] = []
    for position, node in enumerate(graph.nodes):
        new = (value.name for value in node.outputs if value is not None)
        found.append({r for name in new if name in changed for r in readers[changed[name]]})
        for name in node.references():
            readers[views.get(name, name)].add(position)
    return found
