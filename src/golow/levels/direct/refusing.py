"""Checks that operators of both direct levels make before anything is built. The answer is the
reason for a refusal, or an empty text."""

from __future__ import annotations

from golow.levels.direct.implementation import Question
from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator


def refuse_integers(arguments: object, question: Question) -> str:
    """Refuse all types but float32, for what is computed only in float32."""
    return not_floating(question, *(Ref(name=name) for name in question.node.references()))


def not_floating(question: Question, *given: Ref | None) -> str:
    """Refuse if one of these values is not float32."""
    for reference in given:
        if reference is not None and (dtype := question.value(reference).dtype) != "float32":
            return f"{question.node.op} on {dtype}"
    return ""


def not_made_by(question: Question, reference: Ref, kind: type[Operator]) -> str:
    """Refuse a gradient that reads the result of another operator than its own."""
    for node in question.graph.nodes:
        if any(value is not None and value.name == reference.name for value in node.outputs):
            return "" if node.op == kind.op() else f"{question.node.op} of a result of {node.op}"
    return f"{question.node.op} of an input of the graph"


def read_by_others(question: Question, index: int, kind: type[Operator]) -> str:
    """Refuse if other operators than ``kind``, or the graph's outputs, read the result of that
    index, because the level stores it in its own form."""
    value = question.output(index)
    if value is None:
        return ""
    readers = [node.op for node in question.graph.nodes if value.name in node.references()]
    readers += [item.kind for item in question.graph.outputs if item.name == value.name]
    other = next((reader for reader in readers if reader != kind.op()), "")
    return f"{question.node.op} whose result {index} is read by {other}" if other else ""
