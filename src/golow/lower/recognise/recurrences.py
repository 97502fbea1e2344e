"""Passes for recurrent layers: as one operator for a layer and direction, or as a loop over time.

A captured training step has the operators, a captured inference ATen's call of all layers. A level
without a kernel for the operators unfolds them; one that has it keeps those that it is faster for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec

from golow.lower.aten.decomposition import (
    DoesNotApplyError,
    Template,
    instance,
    lenient,
    signature,
    template_of,
    traced_calls,
)
from golow.lower.aten.recurrence_calls import plain_layer
from golow.lower.decompositions.linear_recurrence import gradients, recurrence
from golow.lower.decompositions.recurrent import CALLS, loop, loop_gradients, whole_call
from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.rewriting import Links, Names, rewritten
from golow.lower.operators.linear_recurrence import LinearRecurrence, LinearRecurrenceBackward
from golow.lower.operators.recurrence import Recurrence, RecurrenceBackward

Keeps = Callable[[Recurrence, dict[str, Value]], bool]

IDENTITIES = ("aten.detach.default", "aten.alias.default")


def name_recurrences(graph: Graph) -> Graph:
    """Turn ATen's calls of recurrent layers without dropout into an operator for each layer and
    direction."""
    links, writer = Links(graph), _Writer(graph)
    for position, node in enumerate(graph.nodes):
        if node.op in CALLS and not (node.arguments[5] and node.arguments[6]):
            writer.put(position, node, links, partial(whole_call, plain_layer, CALLS[node.op]))
    return writer.written()


def unfold_recurrences(graph: Graph, keeps: Keeps | None = None) -> Graph:
    """Turn the operators into loops over time, with the gradients that PyTorch would trace. keeps:
    which of them stay as they are. A graph without them is returned as it is."""
    if all(node.op != Recurrence.op() for node in graph.nodes):
        return graph
    links, writer = Links(graph), _Writer(graph)
    later = {_maker(links, b.output.name): i for i, b in _backwards(graph)}
    for position, node in enumerate(graph.nodes):
        forward = Recurrence.of(node)
        if forward is None or (keeps is not None and keeps(forward, links.values)):
            continue
        if position in later:
            writer.put_pair(position, later[position], links)
        else:
            writer.put(position, node, links, loop)
    return writer.written()


def unfold_linear_recurrences(graph: Graph) -> Graph:
    """Turn linear recurrences into loops over their steps, for a level that has no kernel for them.
    A graph without them is returned as it is."""
    definitions: dict[str, Callable[..., Any]] = {
        LinearRecurrence.op(): recurrence,
        LinearRecurrenceBackward.op(): gradients,
    }
    links, writer = Links(graph), _Writer(graph)
    for position, node in enumerate(graph.nodes):
        if node.op in definitions:
            writer.put(position, node, links, definitions[node.op])
    return writer.written()


def _backwards(graph: Graph) -> Iterable[tuple[int, RecurrenceBackward]]:
    for position, node in enumerate(graph.nodes):
        backward = RecurrenceBackward.of(node)
        if backward is not None:
            yield position, backward


def _maker(links: Links, name: str) -> int:
    """Position of the node that computes the value; what only names it anew is passed over."""
    position = links.maker[name]
    node = links.nodes[position]
    source = node.arguments[0] if node.op in IDENTITIES else None
    return _maker(links, source.name) if isinstance(source, Ref) else position


def _both(
    gradient: Any, last_gradient: Any, kind: str, backwards: bool, **given: Any
) -> tuple[Any, ...]:
    """The results of a layer and its gradients."""
    results, gradients = loop_gradients(
        kind, backwards, tuple(given.values()), gradient, last_gradient
    )
    return (*results, *(None,) * (2 - len(results)), *gradients)


class _Writer:
    """Collects what stands in place of nodes. Calls of the same form are traced once."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._names = graph, Names(graph)
        self._templates: dict[object, Template | None] = {}
        self._replaced: dict[int, tuple[Node, ...]] = {}
        self._renamed: dict[str, str] = {}

    def put(
        self, position: int, node: Node, links: Links, definition: Callable[..., Any]
    ) -> tuple[Node, ...]:
        """Put the calls that a definition makes in place of the node. A node that PyTorch cannot
        trace stays, and the levels refuse it."""
        template = self._template(node, links, definition)
        if template is None:
            return ()
        nodes, same = instance(template, node, self._names)
        self._renamed |= same
        self._replaced[position] = nodes
        return nodes

    def put_pair(self, position: int, gradient_position: int, links: Links) -> None:
        """Put a loop in place of a layer, and what the loop's gradients are in place of those,
        so that what the loop computed is not computed again."""
        forward, backward = links.nodes[position], links.nodes[gradient_position]
        fields = dict(forward.keywords)
        given = {k: backward.keywords[k] for k in ("gradient", "last_gradient")}
        both = msgspec.structs.replace(
            forward, keywords=given | fields, outputs=(*forward.outputs, *backward.outputs)
        )
        nodes = self.put(position, both, links, _both)
        later = {item.name for item in given.values() if isinstance(item, Ref)}
        first, then = [], []
        for node in nodes:
            if later.isdisjoint(node.references()):
                first.append(node)
                continue
            later |= {value.name for value in node.outputs if value is not None}
            then.append(msgspec.structs.replace(node, phase=backward.phase, module=backward.module))
        if nodes:
            self._replaced |= {position: tuple(first), gradient_position: tuple(then)}

    def written(self) -> Graph:
        """The graph with all replacements."""
        if not self._replaced:
            return self._graph
        return rewritten(lenient(self._graph), self._replaced, self._renamed)

    def _template(
        self, node: Node, links: Links, definition: Callable[..., Any]
    ) -> Template | None:
        key = signature(node, links)
        if key not in self._templates:
            try:
                traced = traced_calls(definition, node, links)
            except DoesNotApplyError:
                self._templates[key] = None
            else:
                self._templates[key] = template_of(traced, node)
        return self._templates[key]
