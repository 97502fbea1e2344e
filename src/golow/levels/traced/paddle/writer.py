"""Writes a lowered graph as the source of Paddle functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from golow.levels.direct.implementation import Implementation, implementations
from golow.levels.traced import operators as shared
from golow.levels.traced.paddle import operators
from golow.levels.traced.paddle.dialect import PADDLE
from golow.levels.traced.paddle.step import step_source
from golow.levels.traced.writer import Writer, refused_nodes
from golow.lower.ir.graph import Graph
from golow.records.errors import Unsupported
from golow.records.workload import Workload

HEADER = "import math\n\nimport paddle\nimport paddle.nn.functional as F\n"


@cache
def implemented() -> dict[str, Implementation]:
    """Return every operator of the level, by its name in nodes."""
    return implementations(shared) | implementations(operators)


def refused(graph: Graph) -> Iterator[Unsupported]:
    """Yield every node of a lowered graph that the level cannot run."""
    return refused_nodes(graph, PADDLE, implemented())


def written_source(graph: Graph, workload: Workload) -> str:
    """Return the source for a lowered graph. Raises `Unsupported` for the first node that the level
    cannot run."""
    written = Writer(graph, PADDLE, implemented())
    return written.source(workload, HEADER, step_source(workload.optimizer))
