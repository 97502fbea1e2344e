"""From a lowered graph to its plan: what the level implements, whether it can run a graph, and the
build itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from golow.levels.vendor.implementation import (
    Implementation,
    implementations,
    refusals,
    require_supported,
)
from golow.levels.vendor.onednn import operators
from golow.levels.vendor.onednn.builder import LEVEL, Builder, Chooser
from golow.levels.vendor.onednn.library import Engine
from golow.levels.vendor.onednn.steps import DTYPES, Built, Switches
from golow.lower.graph import Graph
from golow.lower.grouping import group_elements
from golow.record import Unsupported


@cache
def implemented() -> dict[str, Implementation]:
    """Return every operator of the level, by its name in nodes."""
    return implementations(operators)


def refused_nodes(graph: Graph) -> Iterator[Unsupported]:
    """Yield every node that the level cannot run, as far as this is known without library."""
    return refusals(LEVEL, graph, implemented(), DTYPES)


def require_runnable(graph: Graph) -> None:
    """Raise `Unsupported` for the first node that the level cannot run, as far as this is known
    without the library."""
    require_supported(LEVEL, graph, implemented(), DTYPES)


def build_plan(
    graph: Graph, engine: Engine, layout_of: Chooser, switches: Switches, generates: bool = False
) -> Built:
    """Return the plan in these layouts. generates: whether kernels can be compiled here. Raises
    `Unsupported`, also if oneDNN refuses a shape."""
    require_runnable(graph)
    arranged_graph = arranged(graph, generates)
    return Builder(arranged_graph, engine, layout_of, switches, generates).build(implemented())


def arranged(graph: Graph, generates: bool) -> Graph:
    """Return the graph as its plan follows it: functions of elements in groups, where kernels can
    be compiled for them."""
    return group_elements(graph) if generates else graph
