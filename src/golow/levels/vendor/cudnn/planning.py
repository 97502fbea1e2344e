"""From a lowered graph to the plan: what the level implements, whether it can run a graph, and the
building."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from golow.levels.vendor.cudnn import operators
from golow.levels.vendor.cudnn.builder import LEVEL, Builder
from golow.levels.vendor.cudnn.ending import finish
from golow.levels.vendor.implementation import (
    Implementation,
    implementations,
    require_supported,
)
from golow.lower.graph import Graph

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engines
    from golow.levels.vendor.cudnn.precision import Types
    from golow.levels.vendor.cudnn.steps import Built

# Of a graph's values; in halves the builder stores them where the precision says so.
DTYPES = ("float32", "int64", "int32", "uint8", "bool")


@cache
def implemented() -> dict[str, Implementation]:
    """Every operator of the level, by the name that nodes have."""
    return implementations(operators)


def require_runnable(graph: Graph) -> None:
    """Raise `Unsupported` for the first node that the level cannot run, as far as that can be told
    without libraries and GPU."""
    require_supported(LEVEL, graph, implemented(), DTYPES)


def build_plan(graph: Graph, engines: Engines, types: Types, batches: int) -> Built:
    """The plan for so many batches in memory. Raises `Unsupported`, also for what no library has an
    engine for."""
    require_runnable(graph)
    return Builder(graph, engines, types, batches).build(implemented(), finish)
