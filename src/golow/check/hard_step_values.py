"""Expected results of operations on hard values (`golow.lower.analysis.hard_values`), which a
level puts in the place of its own while an iteration runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from torch import Tensor

from golow.check.step_values import NOTHING, StepValue, doubled, evaluated, in_double
from golow.lower.analysis.hard_values import hard_nodes
from golow.lower.ir.graph import Graph


class HandedOver(Protocol):
    """The level's values. hard: those that were replaced."""

    hard: tuple[str, ...]

    def __call__(self, position: int, name: str) -> Tensor | None:
        """The value of that name as the node at that position made it."""

    def read_later(self, position: int, name: str) -> Tensor | None:
        """The value as later operations read it."""


class HardStepValue(NamedTuple):
    """One result of an operation that was given hard values. words: what is hard about them."""

    value: StepValue
    words: str


def hard_step_values(
    graph: Graph, inputs: Mapping[str, Tensor], found: HandedOver
) -> Iterator[HardStepValue]:
    """Yield the results of the operations that were given hard values, in the graph's order; as far
    as the level hands over all that they read. inputs: the graph's, by name."""
    graph = in_double(graph)
    judged = dict(hard_nodes(graph, found.hard))
    values = dict(inputs)
    last = {name: place for place, node in enumerate(graph.nodes) for name in node.references()}
    for position, node in enumerate(graph.nodes):
        given = {name: doubled(values[name]) for name in node.references() if name in values}
        known = position in judged and given.keys() == {*node.references()}
        wanted = evaluated(node, given) if known else (None,) * len(node.outputs)
        for place, (value, right) in enumerate(zip(node.outputs, wanted, strict=True)):
            if value is None:
                continue
            own = found(position, value.name)
            if own is not None and right is not None:
                right = right.to(own.device)
                item = StepValue(value.name, node, place, own, right, given, NOTHING, None)
                yield HardStepValue(item, judged[position])
            later = found.read_later(position, value.name)
            if later is not None:
                values[value.name] = later.clone()
            elif right is not None:
                values[value.name] = right
        for name in given:
            if last[name] == position:
                del values[name]
