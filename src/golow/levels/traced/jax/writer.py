"""Writes a lowered graph as the source of JAX functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from golow.levels.direct.implementation import Implementation, implementations
from golow.levels.traced import writer
from golow.levels.traced.jax import operators
from golow.levels.traced.jax.precision import products
from golow.levels.traced.jax.recurrent import definitions
from golow.levels.traced.jax.step import step_source
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload

# JAX computes in 32 bits unless its users ask for more.
DTYPES = {
    "float32": "jnp.float32",
    "bfloat16": "jnp.bfloat16",
    "float16": "jnp.float16",
    "int64": "jnp.int32",
    "int32": "jnp.int32",
    "uint8": "jnp.uint8",
    "bool": "jnp.bool_",
}
INT32 = 2**31 - 1

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
    return implementations(operators)


def written_source(graph: Graph, workload: Workload) -> str:
    """Return the source for a lowered graph. Raises `Unsupported` for the first node that the level
    cannot run."""
    found = products(workload)
    header = HEADER.format(precision=None if found is None else found.matrices)
    convolutions = "" if found is None else found.convolutions
    written = Writer(graph, convolutions)
    return written.source(workload, header, step_source(workload), definitions(graph))


def number(value: float | int | bool) -> str:
    """The number as Python's source; whole numbers within 32 bits."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return writer.number(max(-INT32 - 1, min(INT32, value)) if whole else value)


class Writer(writer.Writer):
    """JAX's words. convolutions: their precision, if it is not JAX's own."""

    level = "jax"
    dtypes = DTYPES
    taken = frozenset({"jax", "jnp", "lax"})

    def __init__(self, graph: Graph, convolutions: str = "") -> None:
        super().__init__(graph)
        self.convolutions = convolutions

    @classmethod
    def implemented(cls) -> Mapping[str, Implementation]:
        """Return every operator of the level, by its name in nodes."""
        return implemented()

    def transposed(self, expression: str, order: Sequence[int]) -> str:
        """The expression with its axes in another order."""
        return f"jnp.transpose({expression}, {tuple(order)})"

    def reshaped(self, expression: str, shape: Sequence[int]) -> str:
        """The expression in another shape."""
        return f"{expression}.reshape({tuple(shape)})"

    def key(self, index: int) -> str:
        """The key of the draw with that index."""
        return f"jax.random.fold_in(key, {index})"

    def converted(self, expression: str, dtype: str) -> str:
        """The expression in another type."""
        return f"{expression}.astype({DTYPES[dtype]})"
