"""The operations of a plan in the test's own process, each held against float64 by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from golow.check.rounding import FLOAT32, Rounding
from golow.check.step_rule import judged, summary
from golow.check.step_values import step_values
from golow.levels.direct.watched_values import Watch, watch
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
