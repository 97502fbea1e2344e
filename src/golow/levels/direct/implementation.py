"""Implementation of an operator at a direct level: how to build it, and which cases it refuses.

A level's ``operators/`` folder has a file for each operator, found by listing the folder. A file
declares its `Implementation` under ``IMPLEMENTATIONS``. Whether a graph can run is checked before
anything is built: `refusals`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from golow.lower.aten.complex_definitions import COMPLEX, FROM_PARTS, TO_PAIRS
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Operator, modules_in, record_of
from golow.lower.ir.rewriting import changed_inputs
from golow.records.errors import Unsupported


class Question(NamedTuple):
    """A question about a node. values: every value of the graph, by name."""

    graph: Graph
    node: Node
    values: Mapping[str, Value]

    def value(self, reference: Ref) -> Value:
        """Return name, shape and dtype of an argument."""
        return self.values[reference.name]

    def output(self, index: int = 0) -> Value | None:
        """Return name, shape and dtype of a result; None if nothing reads it."""
        return self.node.outputs[index]


def refuse_nothing(operator: Any, question: Question) -> str:
    """For an operator that the level runs with any arguments."""
    return ""


def in_groups(build: Any, arguments: Any) -> None:
    """For an operator that a level builds only in groups of functions of elements."""
    raise LookupError(f"{arguments.op()} outside of a group")


class Implementation(NamedTuple):
    """One operator at one level.

    build(builder, arguments) adds its steps. refuse(arguments, question) states what of this node
    the level cannot do, in words that complete the sentence "the level does not support ...", or an
    empty text. It only looks at the graph, shapes and dtypes, and needs neither library nor device.
    reads: types of its values besides those that the level supports for all operators.
    """

    operator: type[Operator]
    build: Callable[[Any, Any], None]
    refuse: Callable[[Any, Question], str] = refuse_nothing
    reads: frozenset[str] = frozenset()


def implementations(package: ModuleType) -> dict[str, Implementation]:
    """Return every implementation in the package's folder and below, by its name in nodes."""
    found: dict[str, Implementation] = {}
    for module in modules_in(package):
        for item in getattr(module, "IMPLEMENTATIONS", ()):
            found[item.operator.op()] = item
    return found


def refusals(
    level: str,
    graph: Graph,
    known: Mapping[str, Implementation],
    dtypes: Collection[str],
    *,
    pairs: bool = True,
) -> Iterator[Unsupported]:
    """Yield every node of the graph that the level cannot run, with the reason, in graph order,
    every buffer that the graph changes though no state of the level holds it, and that there is
    nothing to run.

    dtypes: those that the level supports for values. pairs: whether it computes with complex
    numbers, as pairs of real ones.
    """
    values = graph.values()
    for item in graph.outputs:
        if item.kind == "output" and values[item.name].dtype.startswith("complex"):
            yield Unsupported(
                level, f"output {item.target} is complex, while torch.view_as_real of it is not"
            )
    if not graph.nodes:
        yield Unsupported(level, "the model computes nothing: its outputs are its inputs")
    changes = changed_inputs(graph)
    for position, node in enumerate(graph.nodes):
        question = Question(graph, node, values)
        numbers = _complex_type(question)
        if numbers:
            reason = _reason_of_complex(node, numbers, pairs)
        else:
            reason = _reason(question, known, dtypes)
        if position in changes:
            state = changes[position]
            reason = f"{node.op} changes the {state.kind} {state.target} in each iteration"
        if reason:
            yield Unsupported(level, reason, node.name, node.module)
    held = {item.target: item.kind for item in graph.inputs}
    for item in graph.outputs:
        if item.kind == "buffer" and held.get(item.target) != "buffer":
            unsaved = held.get(item.target) == "constant"
            why = "is not in the state dict" if unsaved else "it does not read"
            yield Unsupported(level, f"a step changes the buffer {item.target}, which {why}")


def require_supported(
    level: str, graph: Graph, known: Mapping[str, Implementation], dtypes: Collection[str]
) -> None:
    """Raise `Unsupported` for the first node that the level cannot run."""
    for refusal in refusals(level, graph, known, dtypes):
        raise refusal


def _complex_type(question: Question) -> str:
    """The type of complex numbers that a node reads or makes; empty if there are none."""
    types = (question.values[name].dtype for name in _names(question.node))
    return next((item for item in types if item.startswith("complex")), "")


def _reason_of_complex(node: Node, numbers: str, pairs: bool) -> str:
    """Empty for a conversion around another node, which has the reason."""
    if not pairs:
        return "complex numbers are not supported"
    if numbers != COMPLEX:
        return f"{numbers}, while it computes with {COMPLEX}"
    return "" if node.op in (FROM_PARTS, TO_PAIRS) else f"{node.op} on complex numbers"


def _reason(
    question: Question, known: Mapping[str, Implementation], dtypes: Collection[str]
) -> str:
    node = question.node
    implementation, arguments = known.get(node.op), record_of(node)
    if implementation is None or arguments is None:
        return f"{node.op} is not implemented"
    for name in _names(node):
        if (
            dtype := question.values[name].dtype
        ) not in dtypes and dtype not in implementation.reads:
            return f"{node.op} on {dtype}"
    return implementation.refuse(arguments, question)


def _names(node: Node) -> Iterator[str]:
    """Values that a node reads and makes."""
    yield from node.references()
    yield from (value.name for value in node.outputs if value is not None)
