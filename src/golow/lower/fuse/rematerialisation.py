"""Rematerialisation: computes functions of elements again in the backward pass where that saves
memory.

What the backward pass reads of the forward pass is kept in between, which is most of a training
step's memory. A function of elements whose arguments are kept anyway need not be: its results are
computed again, bit for bit the same, right before they are read (Chen et al. 2016, "Training Deep
Nets with Sublinear Memory Cost", for the cheapest of functions only).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from golow.lower.analysis.liveness import last_reads
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import read as read_as
from golow.lower.ir.operator import vocabulary, written
from golow.lower.ir.rewriting import Links, rewritten, with_names
from golow.lower.operators.fused import Fused

LEAST_SHARE = 1 / 256
"""Share of the elements that functions leave for the backward pass: less is not worth a launch."""


def recompute(graph: Graph) -> Graph:
    """Put copies of groups of functions before the first backward node that reads their results.

    A group is copied if all that it reads lives until then anyway, and is not changed by the step.
    """
    return _Recomputation(graph).rewritten()


class _Recomputation:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.links = graph, Links(graph)
        self.base, self.last = last_reads(graph)
        self.changed = {i.value.name for i in graph.inputs if i.kind in ("parameter", "buffer")}
        # Reads of each value by backward nodes: names of the value or its views, and positions.
        self.read: dict[str, dict[str, int]] = defaultdict(dict)
        self.kept: set[str] = set()  # what has to stay where it is until then
        for position, node in enumerate(graph.nodes):
            if node.phase != "forward":
                bases = {name: self._of(name) for name in node.references()}
                for name, base in bases.items():
                    self.read[base].setdefault(name, position)
                kind = vocabulary().get(node.op)
                if kind is not None and kind.keeps_operands:
                    self.kept |= set(bases.values())
        self.gone: set[str] = set()

    def rewritten(self) -> Graph:
        """The graph with the copies, which backward nodes read."""
        candidates = [p for p in range(len(self.graph.nodes)) if self._may_be_copied(p)]
        least = LEAST_SHARE * sum(self._elements(p) for p in candidates)
        copies: dict[int, list[Node]] = defaultdict(list)
        renamed: dict[str, str] = {}
        for position in candidates:
            first = min(p for v in self._results(position) for p in self.read[v].values())
            if self._elements(position) < least or not self._is_kept(position, first):
                continue
            self.gone |= set(self._results(position))
            made = list(self._copies(position))
            names = {value.name: _again(value.name) for node in made for value in _values(node)}
            copies[first] += [_copied(node, names) for node in made]
            renamed |= names
        return self._with(copies, renamed)

    def _with(self, copies: dict[int, list[Node]], renamed: dict[str, str]) -> Graph:
        replaced = {}
        for position, node in enumerate(self.graph.nodes):
            if node.phase != "forward":
                replaced[position] = (*copies[position], with_names(node, renamed))
        return rewritten(self.graph, replaced)

    def _of(self, name: str) -> str:
        """The value whose memory it shows."""
        return self.base.get(name, name)

    def _results(self, position: int) -> list[str]:
        """The values of a node that backward nodes read."""
        values = _values(self.graph.nodes[position])
        return [value.name for value in values if value.name in self.read]

    def _elements(self, position: int) -> int:
        values = _values(self.graph.nodes[position])
        return sum(math.prod(v.shape) for v in values if v.name in self.read)

    def _may_be_copied(self, position: int) -> bool:
        node = self.graph.nodes[position]
        if node.op != Fused.op() or node.phase != "forward":
            return False
        stay = any(self.last[value.name] == len(self.graph.nodes) for value in _values(node))
        results = self._results(position)
        return bool(results) and not stay and self.kept.isdisjoint(results)

    def _is_kept(self, position: int, until: int) -> bool:
        """True if all that the node reads is there at that position, without the node."""
        read = {self._of(name) for name in self.graph.nodes[position].references()}
        return not read & (self.gone | self.changed) and all(
            self.last.get(name, -1) >= until for name in read
        )

    def _trimmed(self, position: int) -> Node:
        """The node with those results alone that backward nodes read."""
        node = self.graph.nodes[position]
        read = set(self._results(position))
        values = tuple(value for value in _values(node) if value.name in read)
        yields = tuple(value.name for value in values)
        fused = msgspec.structs.replace(read_as(node, Fused), yields=yields)
        return written(node, fused, outputs=values)

    def _copies(self, position: int) -> Iterator[Node]:
        """The node, and the views of its results that backward nodes read, in their order."""
        yield self._trimmed(position)
        wanted: set[int] = set()
        for value in self._results(position):
            for name in self.read[value]:
                while name != value:
                    maker = self.links.maker[name]
                    source = self.graph.nodes[maker].keywords["x"]
                    if self.graph.nodes[maker].phase == "forward":
                        wanted.add(maker)
                    assert isinstance(source, Ref)  # noqa: S101 - a view has an argument x
                    name = source.name
        yield from (self.graph.nodes[maker] for maker in sorted(wanted))


def _values(node: Node) -> list[Value]:
    return [value for value in node.outputs if value is not None]


def _again(name: str) -> str:
    return f"{name}_again"


def _copied(node: Node, names: dict[str, str]) -> Node:
    outputs = tuple(
        None if v is None else msgspec.structs.replace(v, name=_again(v.name)) for v in node.outputs
    )
    renamed = with_names(node, names)
    return msgspec.structs.replace(
        renamed, name=_again(node.name), outputs=outputs, phase="backward"
    )
