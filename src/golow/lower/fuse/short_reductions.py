"""Fission of reductions over a short axis: functions of its elements, which are views of the
operand.

Some networks pool by the maximum over an extra axis, as Hiera (Ryali et al. 2023,
arXiv:2306.00989) pools the queries of a window; its gradient counts the equal ones. A kernel of
reductions has threads that share a line. For lines of a few elements one thread that reads each
element where it is stored is better, and functions beside it join its kernel.
"""

from __future__ import annotations

import msgspec

from golow.lower.ir.graph import Graph, Node, Ref
from golow.lower.ir.operator import Operator, written
from golow.lower.ir.rewriting import Links, Names, result, rewritten
from golow.lower.operators.pointwise import Function, Pointwise
from golow.lower.operators.reduce import Reduce
from golow.lower.operators.reshape import Reshape
from golow.lower.operators.slice import Slice

FEW = 8  # elements


def reduce_few_elementwise(graph: Graph) -> Graph:
    """Replace each extreme or product over one axis of few elements, and each such sum of integers,
    by functions of two values."""
    links, names = Links(graph), Names(graph)
    replaced = {}
    for position, node in enumerate(graph.nodes):
        found = Reduce.of(node)
        function = None if found is None else _function(links, found)
        if found is not None and function is not None:
            replaced[position] = _functions(links, names, node, found, function)
    return rewritten(graph, replaced) if replaced else graph


def _function(links: Links, found: Reduce) -> Function | None:
    """The function of two values; None for long axes, and for sums and means of floats, whose order
    their own kernels choose."""
    value = links.values[found.x.name]
    if len(found.axes) != 1 or not 1 < value.shape[found.axes[0]] <= FEW:
        return None
    if found.function == "maximum" or found.function == "minimum":
        return found.function
    if found.function == "product":
        return "multiply"
    integers = found.function == "sum" and "int" in value.dtype
    return "add" if integers else None


def _functions(
    links: Links, names: Names, node: Node, found: Reduce, function: Function
) -> tuple[Node, ...]:
    """The parts of the axis, each with size 1 there, joined one after the other."""
    (axis,), whole, value = found.axes, links.values[found.x.name], node.outputs[0]
    assert value is not None  # noqa: S101 - nodes that nothing reads are gone
    shape = tuple(1 if place == axis else size for place, size in enumerate(whole.shape))
    nodes: list[Node] = []

    def add(operator: Operator) -> Ref:
        name = names.free(f"{result(node)}_part")
        part = msgspec.structs.replace(whole, name=name, shape=shape)
        nodes.append(written(node, operator, name=name, outputs=(part,)))
        return Ref(name=name)

    joined, *others = (
        add(Slice(x=found.x, axis=axis, start=place, stop=place + 1, step=1))
        for place in range(whole.shape[axis])
    )
    for part in others:
        joined = add(Pointwise(function=function, operands=(joined, part), dtype=whole.dtype))
    return (*nodes, written(node, Reshape(x=joined, shape=value.shape)))
