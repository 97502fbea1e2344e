"""Hands over the values of an iteration, for the check that computes each operation again.

Nothing here imports a framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from golow.lower.ir.graph import Graph, encode_graph
from golow.worker.protocol import GRAPH_OF_VALUES, ValuesReport

if TYPE_CHECKING:
    from golow.levels.direct.plan_program import PlanProgram

BYTES = {"float32": 4, "int32": 4, "uint8": 1, "bool": 1}
"""Of an element in the file, where 16-bit floats are written as float32."""
Places = Mapping[str, tuple[Any, int]]
"""Where each value lies, and the step after which it is there."""
Watch = Callable[[int], None]
"""What is called with the position of each step after it."""


def write_values(
    program: PlanProgram, batch: int, first: int, most: int, file: Path
) -> ValuesReport:
    """Run one iteration step by step and write the values that its nodes make, from the node at
    that position on, up to that many bytes; of one node at least. The first such file has the
    plan's graph."""
    built = program.execution.built
    names, following = _fitting(built.graph, built.values, first, most)
    found = watched(program.execution, names, partial(program.run_watched, batch))
    metadata = {GRAPH_OF_VALUES: encode_graph(built.graph).decode()} if first == 0 else None
    save_file(found, file, metadata)
    stored = {name: built.values[name][0].dtype for name in names}
    return ValuesReport(following=following, stored=stored)


def watched(
    execution: Any, names: Collection[str], run: Callable[[Watch], None]
) -> dict[str, np.ndarray]:
    """The values of these names, each read after the step that makes it: later ones may reuse its
    memory. run: runs one iteration of the execution's plan under watch."""
    places: Places = execution.built.values
    after: dict[int, list[str]] = {}
    for name in names:
        after.setdefault(places[name][1], []).append(name)
    found: dict[str, np.ndarray] = {}

    def watch(position: int) -> None:
        for name in after.get(position, ()):
            found[name] = execution.read(places[name][0])

    watch(-1)  # before: what a view shows of a weight is not what the update makes of it
    run(watch)
    return found


def _fitting(graph: Graph, values: Places, first: int, most: int) -> tuple[list[str], int | None]:
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


def _made(graph: Graph, position: int, values: Places) -> Iterator[tuple[str, int]]:
    """The values of a node that lie in memory, with their bytes in the file."""
    for value in graph.nodes[position].outputs:
        if value is not None and value.name in values:
            yield value.name, BYTES.get(value.dtype, 8) * math.prod(value.shape)
