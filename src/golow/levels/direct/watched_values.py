"""Hands over the values of an iteration, for the check that computes each operation again.

Nothing here imports a framework.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import save_file

from golow.lower.ir.graph import Graph, encode_graph
from golow.worker.protocol import GRAPH_OF_VALUES, ValuesReport

if TYPE_CHECKING:
    from golow.levels.direct.plan_program import PlanProgram


def write_values(
    program: PlanProgram, batch: int, first: int, most: int, file: Path
) -> ValuesReport:
    """Run one iteration step by step and write the values that its nodes make, from the node at
    that position on, up to that many bytes; of one node at least. The first such file has the
    plan's graph."""
    built = program.execution.built
    names, following = _fitting(built.graph, built.values, first, most)
    steps: dict[int, list[str]] = {}
    for name in names:
        steps.setdefault(built.values[name][1], []).append(name)
    found: dict[str, np.ndarray] = {}

    def watch(position: int) -> None:
        for name in steps.get(position, ()):
            found[name] = program.execution.read(built.values[name][0])

    watch(-1)  # before: what a view shows of a weight is not what the update makes of it
    program.run_watched(batch, watch)
    metadata = {GRAPH_OF_VALUES: encode_graph(built.graph).decode()} if first == 0 else None
    save_file(found, file, metadata)
    stored = {name: built.values[name][0].dtype for name in names}
    return ValuesReport(following=following, stored=stored)


def _fitting(
    graph: Graph, values: dict[str, tuple[object, int]], first: int, most: int
) -> tuple[list[str], int | None]:
    """The names of the values that are written, and the position after their nodes; None behind the
    last."""
    names: list[str] = []
    taken = 0
    for position in range(first, len(graph.nodes)):
        made = list(_made(graph, position, values))
        taken += sum(size for _, size in made)
        if names and taken > most:
            return names, position
        names += [name for name, _ in made]
    return names, None


def _made(
    graph: Graph, position: int, values: dict[str, tuple[object, int]]
) -> Iterator[tuple[str, int]]:
    """The values of a node that lie in memory, with their bytes in the file."""
    for value in graph.nodes[position].outputs:
        if value is not None and value.name in values:
            yield value.name, 8 * int(np.prod(value.shape, dtype=np.int64))
