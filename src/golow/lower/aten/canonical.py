"""Canonicalisation: turns ATen's calls into operators of the vocabulary.

In captured graphs the same layer has different names in inference and in training, arguments by
position, and defaults left out. After this pass it has one name and one record of typed arguments.
Calls outside the vocabulary stay ``aten.*``; the levels refuse them by name.
"""

from __future__ import annotations

from golow.lower.ir.graph import Graph, Node, Value
from golow.lower.ir.operator import Operator, spellings, written
from golow.lower.ir.rewriting import Links, rewritten
from golow.lower.ir.spelling import Call, NotSpelledError


def canonicalise(graph: Graph) -> Graph:
    """Replace every node that the vocabulary covers with its operator. The vocabulary is of real
    numbers: calls on complex ones keep their names."""
    links = Links(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        operator = None if is_complex(node, links) else operator_of(node, links)
        if operator is not None:
            replaced[position] = (written(node, operator, outputs=_outputs(operator, node)),)
    return rewritten(graph, replaced)


def is_complex(node: Node, links: Links) -> bool:
    """True if the node reads or makes complex numbers."""
    made = [value.name for value in node.outputs if value is not None]
    return any(
        links.values[name].dtype.startswith("complex") for name in (*node.references(), *made)
    )


def operator_of(node: Node, links: Links) -> Operator | None:
    """Operator of the vocabulary for the node; None if it has no name for it."""
    spell = spellings().get(node.op)
    if spell is None:
        return None
    try:
        operator = spell(Call(node, links))
    except NotSpelledError:
        return None
    return operator if operator is not None and _gives_all(operator, node) else None


def _outputs(operator: Operator, node: Node) -> tuple[Value | None, ...]:
    """A value for each of the operator's results; None for those that the call does not return."""
    missing = (None,) * (operator.results - len(node.outputs))
    return (*node.outputs, *missing)[: operator.results]


def _gives_all(operator: Operator, node: Node) -> bool:
    """True if every value of the node that is read is among the operator's results."""
    return all(value is None for value in node.outputs[operator.results :])
