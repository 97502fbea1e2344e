"""From a lowered graph to the plan: what the level implements, whether it can run a graph, and the
building."""

from __future__ import annotations

from functools import cache

from golow.levels.vendor.implementation import (
    Implementation,
    implementations,
    require_supported,
)
from golow.levels.vendor.onednn import operators
from golow.levels.vendor.onednn.builder import LEVEL, Builder, Chooser
from golow.levels.vendor.onednn.library import Engine
from golow.levels.vendor.onednn.steps import DTYPES, Built, Switches
from golow.lower.graph import Graph


@cache
def implemented() -> dict[str, Implementation]:
    """Every operator of the level, by the name that nodes have."""
    return implementations(operators)


def require_runnable(graph: Graph) -> None:
    """Raise `Unsupported` for the first node that the level cannot run, as far as that can be told
    without the library."""
    require_supported(LEVEL, graph, implemented(), DTYPES)


def build_plan(graph: Graph, engine: Engine, layout_of: Chooser, switches: Switches) -> Built:
    """The plan in these layouts. Raises `Unsupported`, also for shapes that the library refuses."""
    require_runnable(graph)
    return Builder(graph, engine, layout_of, switches).build(implemented())
