"""What a vendor level has for an operator: how it is built, and what of it the level cannot do.

A level's ``operators/`` folder has a file for each operator, found by looking into the folder; a
file lists its `Implementation` under ``IMPLEMENTATIONS``. Whether a graph can run is a question
that is asked before anything is built: `refusals`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from golow.lower.graph import Graph, Node, Ref, Value
from golow.lower.operator import Operator, modules_in, record_of
from golow.record import Unsupported


class Question(NamedTuple):
    """A node that a level is asked about. values: every value of the graph, by name."""

    graph: Graph
    node: Node
    values: Mapping[str, Value]

    def value(self, reference: Ref) -> Value:
        """Shape and dtype of an argument."""
        return self.values[reference.name]

    def output(self, index: int = 0) -> Value | None:
        """Shape and dtype of a result; None for one that nobody reads."""
        return self.node.outputs[index]


def refuse_nothing(operator: Any, question: Question) -> str:
    """For an operator that the level runs whatever its arguments."""
    return ""


class Implementation(NamedTuple):
    """One operator at one level.

    build(builder, arguments) adds its steps. refuse(arguments, question) says what of this node the
    level cannot do, in words that end the sentence "the level does not support ..."; an empty text
    where it can. It looks at shapes and dtypes alone, and needs neither library nor device.
    """

    operator: type[Operator]
    build: Callable[[Any, Any], None]
    refuse: Callable[[Any, Question], str] = refuse_nothing


def implementations(package: ModuleType) -> dict[str, Implementation]:
    """Every implementation in the package's folder and below it, by the name that nodes have."""
    found: dict[str, Implementation] = {}
    for module in modules_in(package):
        for item in getattr(module, "IMPLEMENTATIONS", ()):
            found[item.operator.op()] = item
    return found


def functions(package: ModuleType) -> dict[str, Any]:
    """What the files of the package's folder have for each activation, by the activation's name."""
    found: dict[str, Any] = {}
    for module in modules_in(package):
        found |= getattr(module, "ACTIVATIONS", {})
    return found


def refusals(
    level: str, graph: Graph, known: Mapping[str, Implementation], dtypes: Collection[str]
) -> Iterator[Unsupported]:
    """Every node of the graph that the level cannot run, with the reason, in the graph's order.

    dtypes: those that the level has values of.
    """
    values = graph.values()
    for node in graph.nodes:
        reason = _reason(Question(graph, node, values), known, dtypes)
        if reason:
            yield Unsupported(level, reason, node.name, node.module)


def require_supported(
    level: str, graph: Graph, known: Mapping[str, Implementation], dtypes: Collection[str]
) -> None:
    """Raise `Unsupported` for the first node that the level cannot run."""
    for refusal in refusals(level, graph, known, dtypes):
        raise refusal


def _reason(
    question: Question, known: Mapping[str, Implementation], dtypes: Collection[str]
) -> str:
    node = question.node
    implementation, arguments = known.get(node.op), record_of(node)
    if implementation is None or arguments is None:
        return f"{node.op} is not implemented"
    names = [*node.references(), *(value.name for value in node.outputs if value is not None)]
    for name in names:
        if question.values[name].dtype not in dtypes:
            return f"{node.op} on {question.values[name].dtype}"
    return implementation.refuse(arguments, question)
