"""From a lowered graph to its plan: what the level implements, whether it can run a graph, and the
build itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn import operators
from golow.levels.direct.cudnn.build.builder import LEVEL, NONE_HELD, NOTHING, Builder
from golow.levels.direct.cudnn.build.finish_training import finish
from golow.levels.direct.cudnn.build.training_state import Held
from golow.levels.direct.implementation import (
    Implementation,
    implementations,
    refusals,
    require_supported,
)
from golow.lower.fuse.pointwise_fusion import group_elements
from golow.lower.fuse.reduction_prologue import compute_within_sums
from golow.lower.fuse.rematerialisation import recompute
from golow.lower.fuse.softmax_prologue import compute_within_softmax, move_reshapes
from golow.lower.ir.graph import Graph
from golow.records.errors import Unsupported

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines
    from golow.levels.direct.cudnn.problems.precision import Types
    from golow.levels.direct.cudnn.steps.built_plan import Built

# Types of a graph's values; the builder stores them in half precision if the precision reports it.
DTYPES = ("float32", "int64", "int32", "uint8", "bool")


@cache
def implemented() -> dict[str, Implementation]:
    """Return every operator of the level, by its name in nodes."""
    return implementations(operators)


def refused_nodes(graph: Graph) -> Iterator[Unsupported]:
    """Yield every node that the level cannot run, as far as this is known without libraries and
    GPU."""
    return refusals(LEVEL, graph, implemented(), DTYPES)


def require_runnable(graph: Graph) -> None:
    """Raise `Unsupported` for the first node that the level cannot run, as far as this is known
    without libraries and GPU."""
    require_supported(LEVEL, graph, implemented(), DTYPES)


def build_plan(
    graph: Graph,
    engines: Engines,
    types: Types,
    batches: int,
    given: Mapping[str, str] = NOTHING,
    held: Mapping[str, Held] = NONE_HELD,
) -> Built:
    """Return the plan for ``batches`` batches in memory. given: types of inputs there, by target,
    where these are not the graph's. held: parameters of another plan, as in `TrainingState`. Raises
    `Unsupported` for what the level cannot run and for operations without an engine."""
    require_runnable(graph)
    builder = Builder(arranged(graph), engines, types, batches, given, held)
    return builder.build(implemented(), finish)


def arranged(graph: Graph) -> Graph:
    """Return the graph as its plan follows it: functions of elements in groups, of which the
    backward pass computes some again, and some within the softmax or the sum that reads them."""
    grouped = recompute(group_elements(move_reshapes(graph)))
    return compute_within_sums(compute_within_softmax(grouped))
