"""Chooses the layout of each convolution, and how each linear layer is computed, by measuring.

oneDNN has two families of convolutions on a CPU: for channels-last activations, and for channels in
blocks (of 16 with AVX-512, otherwise of 8). Which is faster depends on the shape, by up to 40%
either way, and a change between them costs a reorder. The whole plan is measured step by step in
each uniform layout. The cheapest mixture along the order of execution is computed from this and
measured too, and the fastest of all wins.

The same runs compute each linear layer of inference in three ways, named after layouts
(``operators/linear.py``). None of them changes the layout of rows, so each layer takes the fastest.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

import msgspec
import numpy as np

from golow.levels.direct.onednn.bindings.constants import ANY, CHANNELS_LAST
from golow.levels.direct.onednn.bindings.library import channel_block
from golow.levels.direct.onednn.run.execution import Execution
from golow.lower.ir.graph import Graph, Node, Value
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.linear import Linear
from golow.records.record import Record
from golow.storage.cache import read_sealed
from golow.worker.scheduling import ContentionMeter

LayoutName = Literal["any", "channels_last", "blocked"]
Positions = dict[int, LayoutName]
LAYOUTS: tuple[LayoutName, ...] = get_args(LayoutName)
LAYOUTS_FILE = "layouts.json"  # in the cache folder

SECONDS = 0.7  # for measuring a plan
LEAST, MOST = 4, 60  # turns per plan
IN_A_TURN = 2  # timed iterations in a turn
CLEAN_SHARE = 0.01  # largest share of the time in which a plan may wait for a core, as in a race
TRIES, LIMIT = 2, 8.0  # tries and seconds to find a clean moment; otherwise the cleanest try counts
# Assumed cost of a change of layout: seconds, and bytes per second. It is high, so that noise does
# not scatter changes over the network. The mixture is measured afterwards.
CHANGE_SECONDS, CHANGE_BANDWIDTH = 5e-6, 10e9

Prepare = Callable[["Layouts"], Execution]


class Layouts(Record, frozen=True, kw_only=True):
    """Layout of every convolution and method of every linear layer, by position in the graph, and
    how they were chosen.

    clean: no other process used the cores during the measurement; otherwise the next comparison
    chooses again.
    milliseconds: of an iteration, for each candidate.
    """

    positions: dict[int, LayoutName]
    clean: bool = True
    milliseconds: dict[str, float] = {}

    def tag(self, position: int) -> int:
        """Return the format tag for the layer at a position."""
        return tag_of(self.positions.get(position, "any"))


def tag_of(layout: LayoutName) -> int:
    """Return oneDNN's format tag of the layout, on this CPU."""
    if layout == "blocked":
        return channel_block().tag
    return CHANNELS_LAST if layout == "channels_last" else ANY


def read(file: Path, notes: list[str]) -> Layouts | None:
    """Read what an earlier start chose; None if the file is missing, or damaged, which is added to
    the notes."""
    data = read_sealed(file, notes)
    return None if data is None else msgspec.json.decode(data, type=Layouts)


def choose(graph: Graph, prepare: Prepare) -> Layouts:
    """Return the fastest layouts. prepare builds and loads the plan for given layouts."""
    places = (*convolutions(graph), *linear_layers(graph))
    if not places:
        return Layouts(positions={})
    uniform: dict[str, Positions] = {name: dict.fromkeys(places, name) for name in LAYOUTS}
    seconds, clean = _measure(prepare, uniform, len(graph.nodes))
    best = min(seconds, key=lambda name: float(seconds[name].sum()))
    finals = {best: uniform[best], "mixture": cheapest_mixture(graph, seconds)}
    if finals["mixture"] in uniform.values():
        return Layouts(positions=finals[best], clean=clean, milliseconds=_totals(seconds))
    final_seconds, final_clean = _measure(prepare, finals, len(graph.nodes))
    best = min(finals, key=lambda name: float(final_seconds[name].sum()))
    return Layouts(
        positions=finals[best],
        clean=clean and final_clean,
        milliseconds=_totals(seconds | final_seconds),
    )


def _totals(seconds: dict[str, np.ndarray]) -> dict[str, float]:
    """Milliseconds of a whole iteration."""
    return {name: round(float(each.sum()) * 1e3, 4) for name, each in seconds.items()}


def convolutions(graph: Graph) -> list[int]:
    """Return the positions of nodes whose layout can be chosen."""
    ops = (Convolution.op(), ConvolutionBackward.op())
    return [position for position, node in enumerate(graph.nodes) if node.op in ops]


def linear_layers(graph: Graph) -> list[int]:
    """Return the positions of nodes whose method can be chosen."""
    if graph.mode != "infer":
        return []
    return [position for position, node in enumerate(graph.nodes) if node.op == Linear.op()]


def cheapest_mixture(graph: Graph, seconds: dict[str, np.ndarray]) -> Positions:
    """Return the cheapest layout of each convolution and the fastest method of each linear layer,
    from the seconds of every node in each layout."""
    layers = linear_layers(graph)
    rest = {name: taken.copy() for name, taken in seconds.items()}
    for taken in rest.values():
        taken[layers] = 0.0
    names = [name for name in LAYOUTS if name in seconds]
    fastest: Positions = {
        position: min(names, key=lambda name: float(seconds[name][position])) for position in layers
    }
    return _along(graph, names, rest) | fastest


def _along(graph: Graph, names: Sequence[LayoutName], seconds: dict[str, np.ndarray]) -> Positions:
    """Return the cheapest layout of each convolution, by dynamic programming along the order of
    execution. The cost is the time of its stretch (up to the next convolution) and, if the layout
    changes, the time to reorder what it reads."""
    places = convolutions(graph)
    if not places:
        return {}
    values = graph.values()
    ends = [*places[1:], len(graph.nodes)]
    cost = {name: float(seconds[name][: places[0]].sum()) for name in names}
    path: dict[LayoutName, list[LayoutName]] = {name: [] for name in names}
    for start, end in zip(places, ends, strict=True):
        change = _change_seconds(graph.nodes[start], values)
        new_cost, new_path = {}, {}
        for name in names:
            before = min(names, key=lambda b: cost[b] + (change if b != name else 0.0))
            stretch = float(seconds[name][start:end].sum())
            new_cost[name] = cost[before] + (change if before != name else 0.0) + stretch
            new_path[name] = [*path[before], name]
        cost, path = new_cost, new_path
    return dict(zip(places, path[min(cost, key=lambda name: cost[name])], strict=True))


def _change_seconds(node: Node, values: dict[str, Value]) -> float:
    """Seconds to reorder a convolution's first argument: the image, or its result's gradient."""
    elements = math.prod(values[next(node.references())].shape)
    return CHANGE_SECONDS + 2 * 4 * elements / CHANGE_BANDWIDTH


def _measure(
    prepare: Prepare, candidates: dict[str, Positions], nodes: int
) -> tuple[dict[str, np.ndarray], bool]:
    """Return the seconds by node of every candidate, and whether the moment was clean.

    The candidates run in turn, so that a machine that slows down affects all of them. The seconds
    are medians of iterations that are timed step by step.
    """
    executions = {
        name: prepare(Layouts(positions=positions)) for name, positions in candidates.items()
    }
    deadline = time.perf_counter() + LIMIT
    waited, samples = math.inf, dict[str, list[np.ndarray]]()
    for _ in range(TRIES):
        with _waiting() as share:
            found = _in_turn(executions, nodes, deadline)
        if share[0] < waited:
            waited, samples = share[0], found
        if waited <= CLEAN_SHARE or time.perf_counter() > deadline:
            break
    medians = {name: np.median(np.array(each), axis=0) for name, each in samples.items()}
    return medians, waited <= CLEAN_SHARE


def _in_turn(
    executions: dict[str, Execution], nodes: int, deadline: float
) -> dict[str, list[np.ndarray]]:
    """Run iterations of every candidate, turn by turn until there are enough. At least one turn
    runs, and none begins after the deadline."""
    samples: dict[str, list[np.ndarray]] = {name: [] for name in executions}
    started = time.perf_counter()
    for turn in range(MOST):
        now = time.perf_counter()
        if turn >= LEAST and now > started + SECONDS * len(executions):
            break
        if turn and now > deadline:
            break
        for name, execution in executions.items():
            samples[name] += _iterations(execution, nodes)
    return samples


def _iterations(execution: Execution, nodes: int) -> Iterator[np.ndarray]:
    """Yield the seconds by node of some iterations, after one that warms the caches."""
    execution.run()
    for _ in range(IN_A_TURN):
        seconds = np.zeros(nodes)
        for position, spent in execution.run_timed():
            seconds[execution.built.nodes[position]] += spent * 1e-9
        yield seconds


@contextmanager
def _waiting() -> Iterator[list[float]]:
    """Measure the share of the time that this process's threads waited for a core. The yielded list
    holds it after the block; 0 if the system does not report it, since no later start could know
    more."""
    meter, share = ContentionMeter(os.getpid()), [0.0]
    before, started = meter.read(), time.perf_counter_ns()
    yield share
    waited = meter.wait_share(before, meter.read(), time.perf_counter_ns() - started)
    share[0] = waited or 0.0
