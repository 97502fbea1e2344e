"""What several operators ask before anything is built. An answer is the reason for a refusal, and
empty where there is none."""

from __future__ import annotations

from golow.levels.vendor.implementation import Question
from golow.levels.vendor.onednn.eltwise import functions_of_elements
from golow.lower.graph import Activation, Ref
from golow.lower.operator import Operator


def refuse_integers(arguments: object, question: Question) -> str:
    """For what is computed with float32 alone."""
    return not_floating(question, *(Ref(name=name) for name in question.node.references()))


def not_floating(question: Question, *given: Ref | None) -> str:
    """Where one of these is no float32."""
    for reference in given:
        if reference is not None and (dtype := question.value(reference).dtype) != "float32":
            return f"{question.node.op} on {dtype}"
    return ""


def without_algorithm(question: Question, activation: Activation | None) -> str:
    """Where oneDNN has no algorithm for the activation."""
    if activation is None or activation.name in functions_of_elements():
        return ""
    return f"{question.node.op} with the activation {activation.name}"


def read_by_others(question: Question, index: int, kind: type[Operator]) -> str:
    """Where a result of that index, which the level leaves in a form of its own, is read by anybody
    but operators of that kind."""
    value = question.output(index)
    if value is None:
        return ""
    readers = [node.op for node in question.graph.nodes if value.name in node.references()]
    readers += [item.kind for item in question.graph.outputs if item.name == value.name]
    other = next((reader for reader in readers if reader != kind.op()), "")
    return f"{question.node.op} whose result {index} is read by {other}" if other else ""


def not_made_by(question: Question, reference: Ref, kind: type[Operator]) -> str:
    """Where a gradient reads what another operator than its own has made."""
    for node in question.graph.nodes:
        if any(value is not None and value.name == reference.name for value in node.outputs):
            return "" if node.op == kind.op() else f"{question.node.op} of what {node.op} has made"
    return f"{question.node.op} of an input of the graph"
