"""Fission of linear layers over an axis of a few elements that is not the innermost one: sums of
functions of its elements, which are views of the operand.

Talking heads (Shazeer et al. 2020, arXiv:2003.02436), as in CaiT, are the pattern: a linear layer
mixes the scores of all heads, and another one the weights. A product needs the heads innermost, so
that scores are copied before it and after it. Functions read them where they are stored, and become
part of the softmax that follows.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from golow.lower.ir.clean_up import eliminate_dead_code
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, absorbing, result, rewritten
from golow.lower.operators.linear import Linear
from golow.lower.operators.permute import Permute
from golow.lower.operators.pointwise import Function, Pointwise
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

FEW = 4  # features: one kernel reads each of them, a column of the weight for each, and the bias


class _Mixed(NamedTuple):
    """A linear layer over an axis of x, and the position of the permutation that moves the axis
    back to its place."""

    layer: Linear
    x: Ref
    axis: int
    end: int


def mix_few_elementwise(graph: Graph) -> Graph:
    """Replace each linear layer of a few features, between two permutations that move their axis to
    the end and back, by functions of elements."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        found = _found(links, node)
        if found is not None:
            replaced[position] = ()
            replaced[found.end] = _Writer(links, names, position).functions(found)
    return eliminate_dead_code(rewritten(graph, replaced)) if replaced else graph


def _found(links: Links, node: Node) -> _Mixed | None:
    layer = Linear.of(node)
    if layer is None or layer.residual is not None or layer.activation is not None:
        return None
    maker, end = links.made_by(layer.x, Permute.op()), links.only_reader(result(node))
    first = None if maker is None else Permute.of(links.nodes[maker])
    back = None if end is None else Permute.of(links.nodes[end])
    if first is None or back is None or end is None:
        return None
    axis, last = first.order[-1], len(first.order) - 1
    moved = (*(i for i in range(last + 1) if i != axis), axis)
    returned = (*range(axis), last, *range(axis, last))
    few = max(links.values[layer.weight.name].shape) <= FEW
    if not few or axis == last or first.order != moved or back.order != returned:
        return None
    return _Mixed(layer, first.x, axis, end)


class _Writer:
    """Writes the functions in place of the layer at a position."""

    def __init__(self, links: Links, names: Names, position: int) -> None:
        self._links, self._names, self._node = links, names, links.nodes[position]
        self._made: list[Node] = []

    def functions(self, found: _Mixed) -> tuple[Node, ...]:
        """The sum of all features, each times its column of the weight, and the bias."""
        end = self._links.nodes[found.end]
        (value,) = end.outputs
        assert value is not None  # noqa: S101 - dead code is gone
        whole, weight = self._links.values[found.x.name].shape, found.layer.weight
        outputs, features = self._links.values[weight.name].shape
        column = (outputs, *[1] * (len(whole) - found.axis - 1))
        one = (*whole[: found.axis], 1, *whole[found.axis + 1 :])
        terms: list[Ref] = []
        for place in range(features):
            part = self._cut(found.x, found.axis, place, one)
            factor = self._shaped(self._cut(weight, 1, place, (outputs, 1)), column)
            terms.append(self._function("multiply", part, factor, value))
        if found.layer.bias is not None:
            terms.append(self._shaped(found.layer.bias, column))
        total = terms[0]
        for term in terms[1:]:
            total = self._function("add", total, term, value)
        last = msgspec.structs.replace(self._made.pop(), name=end.name, outputs=(value,))
        absorbed = absorbing(self._node, end)
        return (*self._made, msgspec.structs.replace(last, absorbed=absorbed))

    def _cut(self, x: Ref, axis: int, place: int, shape: tuple[int, ...]) -> Ref:
        return self._add(Slice(x=x, axis=axis, start=place, stop=place + 1, step=1), shape)

    def _shaped(self, x: Ref, shape: tuple[int, ...]) -> Ref:
        return self._add(Reshape(x=x, shape=shape), shape)

    def _function(self, function: Function, a: Ref, b: Ref, like: Value) -> Ref:
        return self._add(
            Pointwise(function=function, operands=(a, b), dtype=like.dtype), like.shape
        )

    def _add(self, operator: Operator, shape: tuple[int, ...]) -> Ref:
        name = self._names.free(f"{result(self._node)}_part")
        made = Value(name=name, shape=shape, dtype=self._links.values[result(self._node)].dtype)
        beside = msgspec.structs.replace(self._node, absorbed=())
        self._made.append(written(beside, operator, name=name, outputs=(made,)))
        return Ref(name=name)
