"""The operations of a plan in the test's own process, each compared with float64 by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from golow.check.hard_step_values import hard_step_values
from golow.check.rounding import FLOAT32, Rounding
from golow.check.step_rule import judged, summary
from golow.check.step_values import doubled, evaluated, step_values
from golow.levels.direct.watched_values import Watch, replaceable, watch
from golow.lower.ir.graph import Graph
from golow.records.comparison import StepsCheck
from support.direct.in_process import Network, graph_inputs


def steps_check(
    network: Network,
    execution: Any,
    run: Callable[[Watch], None],
    working: Rounding = FLOAT32,
    graph: Graph | None = None,
) -> StepsCheck:
    """Run an iteration on the first batch, from weights that no step has changed, and judge its
    operations. run: runs it under watch. graph: what the plan should compute, if that is not what
    it was built from."""
    built = execution.built
    found: dict[str, torch.Tensor] = {}

    def take(name: str, array: np.ndarray) -> None:
        found[name] = torch.from_numpy(array.copy())

    watch(execution, built.values.keys(), take, run)
    graph = graph or built.graph
    items = step_values(graph, graph_inputs(network, graph), lambda _, name: found.get(name))
    return summary(judged(item, working, built.values[item.name][0].dtype) for item in items)


def level_values(
    graph: Graph, inputs: Mapping[str, Tensor], stored: Callable[[str, Tensor], Tensor]
) -> dict[str, Tensor]:
    """The values of a level that computes every operation right. stored: makes what it keeps of a
    right result, by the value's name."""
    values = {name: doubled(tensor) for name, tensor in inputs.items()}
    found: dict[str, Tensor] = {}
    for node in graph.nodes:
        results = evaluated(node, {name: values[name] for name in node.references()})
        for value, result in zip(node.outputs, results, strict=True):
            if value is not None:
                found[value.name] = stored(value.name, result)
                values[value.name] = doubled(found[value.name])
    return found


class HandedOver:
    """Values of a level as they were made, and as later operations read them."""

    def __init__(self, hard: tuple[str, ...]) -> None:
        self.hard = hard
        self.made: dict[str, Tensor] = {}
        self.replaced: dict[str, Tensor] = {}

    def __call__(self, position: int, name: str) -> Tensor | None:
        return self.made.get(name)

    def read_later(self, position: int, name: str) -> Tensor | None:
        return self.replaced.get(name, self.made.get(name))


def hard_steps_check(
    network: Network,
    execution: Any,
    run: Callable[[Watch], None],
    working: Rounding = FLOAT32,
    graph: Graph | None = None,
) -> StepsCheck:
    """The same with hard values in the place of some of the level's."""
    built = execution.built
    harder = replaceable(built.graph, built.values)
    found = HandedOver(tuple(harder))

    def into(values: dict[str, Tensor]) -> Callable[[str, np.ndarray], None]:
        def take(name: str, array: np.ndarray) -> None:
            values[name] = torch.from_numpy(array.copy())

        return take

    watch(execution, built.values.keys(), into(found.made), run, harder, into(found.replaced))
    graph = graph or built.graph
    return summary(
        msgspec.structs.replace(
            judged(value, working, built.values[value.name][0].dtype), hard=words
        )
        for value, words in hard_step_values(graph, graph_inputs(network, graph), found)
    )
