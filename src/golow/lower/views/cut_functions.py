"""Slice sinking: computes a function of elements on ranges of its arguments, where ranges of its
result are all that is read.

The gradient of a rotary embedding (Su et al. 2021, "RoFormer") is the pattern: the gradient times
the sines is cut in two, or in pairs, and joined the other way round. Cut before the product,
`compute_before_joining` makes one kernel of all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, result, rewritten, with_names
from golow.lower.operators.concatenate import Concatenate
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice
from golow.lower.views.joined_functions import FUNCTIONS

Shape = tuple[int, ...]


def cut_before_functions(graph: Graph) -> Graph:
    """Let functions of elements read ranges, where their results are read in two ranges of one size
    alone, each for another function or a concatenation. More ranges would be as many kernels."""
    while True:
        replaced = _Functions(graph).replaced()
        if not replaced:
            return graph
        graph = eliminate_dead_code(rewritten(graph, replaced))


class _Cut(NamedTuple):
    """A range of a function's result. position: of the slice; pairs: how many elements of the last
    axis have an axis of their own before the slice, or 1."""

    position: int
    operator: Slice
    pairs: int


class _Functions:
    """The functions of a graph, and the ranges of their results."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._links, self._names = graph, Links(graph), Names(graph)

    def replaced(self) -> dict[int, tuple[Node, ...]]:
        """Nodes that replace the slices."""
        found: dict[int, tuple[Node, ...]] = {}
        for node in self._graph.nodes:
            for cut in self._cuts(node) if node.op in FUNCTIONS else ():
                found[cut.position] = self._cut_before(node, cut)
        return found

    def _cuts(self, node: Node) -> list[_Cut]:
        """The ranges in which alone a value is read, or nothing."""
        shape = self._shape(result(node))
        found = self._cuts_of(result(node), node.phase, 1) if math.prod(shape) > 1 else None
        sizes = [self._shape(result(self._links.nodes[cut.position])) for cut in found or ()]
        apart = sum(map(math.prod, sizes)) <= math.prod(shape)
        return found if found and len(sizes) == 2 and len(set(sizes)) == 1 and apart else []

    def _cuts_of(self, name: str, phase: str, pairs: int) -> list[_Cut] | None:
        """The ranges of a value, or of a view of it with pairs; None if something else reads it."""
        if name in self._links.returned:
            return None
        found: list[_Cut] = []
        for position in self._links.readers[name]:
            reader = self._links.nodes[position]
            view, cut = Reshape.of(reader), Slice.of(reader)
            inner: list[_Cut] | None = None
            if reader.phase != phase:
                return None
            if cut is not None and self._is_read_by_functions(result(reader)):
                inner = [_Cut(position, cut, pairs)]
            elif view is not None and pairs == 1 and view.shape[:-2] == self._shape(name)[:-1]:
                inner = self._cuts_of(result(reader), phase, view.shape[-1])
            if inner is None:
                return None
            found += inner
        return found

    def _is_read_by_functions(self, name: str) -> bool:
        """True if one function or concatenation alone reads the value, or a view of it."""
        position = self._links.only_reader(name)
        if position is None:
            return False
        reader = self._links.nodes[position]
        if Reshape.of(reader) is not None:
            return self._is_read_by_functions(result(reader))
        return reader.op in (*FUNCTIONS, Concatenate.op())

    def _cut_before(self, node: Node, cut: _Cut) -> tuple[Node, ...]:
        """The function of ranges, at the place of the slice."""
        sliced = self._links.nodes[cut.position]
        new: list[Node] = []
        names = {name: self._range(name, sliced, cut, new) for name in node.references()}
        made = msgspec.structs.replace(
            with_names(node, names), name=sliced.name, outputs=sliced.outputs
        )
        return (*new, made)

    def _range(self, name: str, sliced: Node, cut: _Cut, new: list[Node]) -> str:
        """An operand's range; the operand itself where all ranges share it."""
        shape, rank = self._shape(name), len(self._shape(result(sliced)))
        if cut.pairs > 1 and shape:
            pairs = 1 if shape[-1] == 1 else cut.pairs
            shape = (*shape[:-1], shape[-1] // pairs, pairs)
            name = self._emit(Reshape(x=Ref(name=name), shape=shape), name, shape, sliced, new)
        axis = cut.operator.axis - rank + len(shape)
        if axis < 0 or shape[axis] == 1:
            return name
        size = self._shape(result(sliced))[cut.operator.axis]
        operator = msgspec.structs.replace(cut.operator, x=Ref(name=name), axis=axis)
        shape = (*shape[:axis], size, *shape[axis + 1 :])
        return self._emit(operator, name, shape, sliced, new)

    def _emit(
        self, operator: Operator, source: str, shape: Shape, beside: Node, new: list[Node]
    ) -> str:
        """Add a view of an operand; return its name."""
        name = self._names.free(f"{source}.range")
        known = {value.name: value for node in new for value in node.outputs if value is not None}
        dtype = (known.get(source) or self._links.values[source]).dtype
        made = Value(name=name, shape=shape, dtype=dtype)
        like = msgspec.structs.replace(beside, absorbed=())
        new.append(written(like, operator, name=name, outputs=(made,)))
        return name

    def _shape(self, name: str) -> Shape:
        return self._links.values[name].shape
