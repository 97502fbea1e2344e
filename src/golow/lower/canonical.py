"""The pass right after capture: every call of ATen's becomes an operator of the vocabulary.

The same layer has one name in inference and others in training, arguments by position and defaults
left out. From here on it has one name and one record of typed arguments. What the vocabulary does
not have stays ``aten.*``; the levels refuse it by name.
"""

from __future__ import annotations

from golow.lower.graph import Graph, Node, Value
from golow.lower.operator import Operator, spellings, written
from golow.lower.rewriting import Links, rewritten
from golow.lower.spelling import Call, NotSpelledError


def canonicalise(graph: Graph) -> Graph:
    """Write every node that the vocabulary knows as its operator."""
    links, known = Links(graph), spellings()
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        spell = known.get(node.op)
        if spell is None:
            continue
        try:
            operator = spell(Call(node, links))
        except NotSpelledError:
            continue
        if operator is not None and _gives_all(operator, node):
            replaced[position] = (written(node, operator, outputs=_outputs(operator, node)),)
    return rewritten(graph, replaced)


def _outputs(operator: Operator, node: Node) -> tuple[Value | None, ...]:
    """A value for each of the operator's results, None for those that the call does not give."""
    missing = (None,) * (operator.results - len(node.outputs))
    return (*node.outputs, *missing)[: operator.results]


def _gives_all(operator: Operator, node: Node) -> bool:
    """Whether every value of the node that anybody reads is among the operator's results."""
    return all(value is None for value in node.outputs[operator.results :])
