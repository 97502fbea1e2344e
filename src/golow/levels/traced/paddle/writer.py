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


MOST_AXES = 9  # of a tensor, as seen at PaddlePaddle 3.3


@cache
def implemented() -> dict[str, Implementation]:
    """Return every operator of the level, by its name in nodes."""
    return implementations(shared) | implementations(operators)


def refused(graph: Graph) -> Iterator[Unsupported]:
    """Yield every node of a lowered graph that the level cannot run."""
    yield from refused_nodes(graph, PADDLE, implemented())
    yield from _with_too_many_axes(graph)


def written_source(graph: Graph, workload: Workload) -> str:
    """Return the source for a lowered graph. Raises `Unsupported` for the first node that the level
    cannot run."""
    for refusal in _with_too_many_axes(graph):
        raise refusal
    written = Writer(graph, PADDLE, implemented())
    return written.source(workload, HEADER, step_source(workload.optimizer))


def _with_too_many_axes(graph: Graph) -> Iterator[Unsupported]:
    for node in graph.nodes:
        axes = max((len(value.shape) for value in node.outputs if value is not None), default=0)
        if axes > MOST_AXES:
            reason = f"a tensor of {axes} axes; PaddlePaddle has at most {MOST_AXES}"
            yield Unsupported(PADDLE.level, reason, node.name, node.module)
