"""Hands over the values of an iteration, for the check that computes each operation again.

Nothing here imports a framework.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from golow.lower.analysis.hard_values import Harder, hard_nodes, hard_values
from golow.lower.ir.graph import Graph, encode_graph
from golow.lower.operators.quantize import E4M3
from golow.worker.protocol import GRAPH_OF_VALUES, StoredValue, ValuesReport

if TYPE_CHECKING:
    from golow.levels.direct.plan_program import PlanProgram

BYTES = {"float32": 4, E4M3: 4, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}
"""Bytes of an element in the file, where narrower floats are written as float32."""
ALIGNMENT = 64
"""Bytes: where values begin in the file."""
Places = Mapping[str, tuple[Any, int]]
"""Where each value is stored, and the step after which it is there."""
Watch = Callable[[int], None]
"""Callback that gets the position of each step after it."""
Take = Callable[[str, np.ndarray], None]
"""Callback that gets each value by its name. The array is the level's memory: it is to be
copied."""
NONE_HARDER: Mapping[str, Harder] = {}


def write_values(
    program: PlanProgram, batch: int, first: int, most: int, file: Path, hard: bool
) -> ValuesReport:
    """Run one iteration step by step and write the values that its nodes make, from the node at
    that position on, up to that many bytes; of one node at least. Beside the first such file is
    stored the plan's graph. hard: make the inputs of some operations hard, and write only what
    those read and make."""
    built = program.execution.built
    harder = replaceable(built.graph, built.values) if hard else {}
    wanted = _around(built.graph, harder) & built.values.keys() if hard else built.values.keys()
    places = {name: built.values[name] for name in wanted}
    names, following = _fitting(built.graph, places, first, most)
    if first == 0:
        file.with_name(file.name + GRAPH_OF_VALUES).write_bytes(encode_graph(built.graph))
    stored: dict[str, StoredValue] = {}
    replaced: dict[str, StoredValue] = {}
    with file.open("r+b" if file.exists() else "w+b") as target:

        def take(into: dict[str, StoredValue], name: str, array: np.ndarray) -> None:
            into[name] = _written(array, built.values[name][0].dtype, target)

        made = partial(take, stored)
        run = partial(program.run_watched, batch)
        watch(program.execution, names, made, run, harder, partial(take, replaced))
    return ValuesReport(
        following=following, stored=stored, replaced=replaced, hard=tuple(sorted(harder))
    )


def watch(
    execution: Any,
    names: Collection[str],
    take: Take,
    run: Callable[[Watch], None],
    harder: Mapping[str, Harder] = NONE_HARDER,
    take_replaced: Take | None = None,
) -> None:
    """Take the values of these names, each after the step that makes it: later ones may reuse its
    memory. run: runs one iteration of the execution's plan under watch. harder: what replaces
    values when they have been taken; all that is in such memory is taken again, as later steps
    read it."""
    places: Places = execution.built.values
    after: dict[int, list[str]] = {}
    for name in names:
        after.setdefault(places[name][1], []).append(name)
    replaced: dict[int, list[str]] = {}
    for name in harder:
        replaced.setdefault(places[name][1], []).append(name)

    def see(position: int) -> None:
        there = after.get(position, ())
        for name in there:
            take(name, execution.view(places[name][0]))
        for name in replaced.get(position, ()):
            tensor = places[name][0]
            execution.write(tensor, harder[name](execution.read(tensor)))
        if position in replaced and take_replaced is not None:
            for name in there:
                take_replaced(name, execution.view(places[name][0]))

    see(-1)  # before: what a view shows of a weight is not what the update makes of it
    run(see)


def replaceable(graph: Graph, values: Places) -> dict[str, Harder]:
    """The values that can be made hard while an iteration runs: made by a step, in memory that has
    nothing else which is read later."""
    made = {
        value.name: position
        for position, node in enumerate(graph.nodes)
        for value in node.outputs
        if value is not None
    }
    last = {name: place for place, node in enumerate(graph.nodes) for name in node.references()}
    last |= {item.name: len(graph.nodes) for item in graph.outputs}
    within: dict[int, list[str]] = {}
    for name, (tensor, _) in values.items():
        within.setdefault(tensor.buffer, []).append(name)

    def alone(name: str) -> bool:
        tensor, step = values[name]
        return step >= 0 and not any(
            values[other][1] < step and last.get(other, -1) > made[name]
            for other in within[tensor.buffer]
        )

    return {
        name: harder
        for name, harder in hard_values(graph).items()
        if name in made and name in values and alone(name)
    }


def _around(graph: Graph, hard: Collection[str]) -> set[str]:
    """Inputs and results of operations on these values."""
    found: set[str] = set()
    for position, _ in hard_nodes(graph, hard):
        node = graph.nodes[position]
        found.update(node.references())
        found.update(value.name for value in node.outputs if value is not None)
    return found


def _written(array: np.ndarray, held: str, file: BinaryIO) -> StoredValue:
    """Append a value to the file in the order in which it is in the level's memory: to turn the
    axes of images takes longer than all else."""
    order = tuple(sorted(range(array.ndim), key=lambda axis: -array.strides[axis]))
    offset = -(-file.tell() // ALIGNMENT) * ALIGNMENT
    file.seek(offset)
    np.ascontiguousarray(array.transpose(order)).tofile(file)
    return StoredValue(
        held=held, dtype=array.dtype.name, offset=offset, shape=array.shape, order=order
    )


def _fitting(graph: Graph, values: Places, first: int, most: int) -> tuple[list[str], int | None]:
    """The names of the values that are written, and the position after their nodes; None after the
    last."""
    names: list[str] = []
    taken = 0
    for position in range(first, len(graph.nodes)):
        made = dict(_made(graph, position, values))
        taken += sum(made.values())
        if names and taken > most:
            return names, position
        names += made
    return names, None


def _made(graph: Graph, position: int, values: Places) -> Iterator[tuple[str, int]]:
    """The values of a node that are in memory, with their bytes in the file."""
    for value in graph.nodes[position].outputs:
        if value is not None and value.name in values:
            yield value.name, BYTES.get(value.dtype, 8) * math.prod(value.shape)
