"""Writes a lowered graph as the source of JAX functions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from golow.levels.direct.implementation import Implementation, implementations
from golow.levels.traced import operators as shared
from golow.levels.traced.jax import operators
from golow.levels.traced.jax.dialect import JAX
from golow.levels.traced.jax.precision import products
from golow.levels.traced.jax.recurrent import definitions
from golow.levels.traced.jax.step import step_source
from golow.levels.traced.writer import Writer, refused_nodes
from golow.lower.ir.graph import Graph
from golow.records.errors import Unsupported
from golow.records.workload import Workload

HEADER = """import math

import jax
import jax.numpy as jnp
from jax import lax

# Of matrix products of float32 numbers; JAX's own on a CPU.
PRECISION = {precision!r}
"""


@cache
def implemented() -> dict[str, Implementation]:
    """Return every operator of the level, by its name in nodes."""
    return implementations(shared) | implementations(operators)


def refused(graph: Graph) -> Iterator[Unsupported]:
    """Yield every node of a lowered graph that the level cannot run."""
    return refused_nodes(graph, JAX, implemented())


def written_source(graph: Graph, workload: Workload) -> str:
    """Return the source for a lowered graph. Raises `Unsupported` for the first node that the level
    cannot run."""
    found = products(workload)
    header = HEADER.format(precision=None if found is None else found.matrices)
    convolutions = "" if found is None else found.convolutions
    written = JaxWriter(graph, convolutions)
    return written.source(workload, header, step_source(workload), definitions(graph))


class JaxWriter(Writer):
    """Writes one graph for JAX. convolutions: their precision, if it is not JAX's own."""

    def __init__(self, graph: Graph, convolutions: str) -> None:
        super().__init__(graph, JAX, implemented())
        self.convolutions = convolutions
