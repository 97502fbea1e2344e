"""Shows a model's graph on its way to a level, stage by stage."""

from __future__ import annotations

from typing import NamedTuple

from golow.cache import open_cache
from golow.levels import ladder
from golow.lower.graph import Graph
from golow.lower.passes import CLEAN_UP, stages
from golow.lower.plan import Plan
from golow.record import GolowError
from golow.workload.captured import capture
from golow.workload.prepare import Prepared


class Lowered(NamedTuple):
    """The graph as captured and after each pass; the plan or the source, for a level that has
    one."""

    stages: tuple[Graph, ...]
    plan: Plan | None = None
    source: str = ""


def lower(prepared: Prepared, level: str = "") -> Lowered:
    """Run the common passes on the workload's graph, then the level's passes if one is named.
    Raises `GolowError` if the level does not use a graph or cannot run here, `Unsupported` if it
    lacks an operation."""
    workload = prepared.workload
    graphs = tuple(stages(capture(prepared).graph, CLEAN_UP))
    if not level:
        return Lowered(graphs)
    chosen = ladder.choose(level, workload.mode, workload.device).level
    if not chosen.from_graph:
        known = ", ".join(item.name for item in ladder.LADDER if item.from_graph)
        raise GolowError(f"{level} runs the module, not a graph", f"levels that lower: {known}.")
    if chosen.passes is not None:
        graphs += tuple(stages(graphs[-1], chosen.passes(workload)))[1:]
    if chosen.source is not None:
        return Lowered(graphs, source=chosen.source(graphs[-1], workload))
    if chosen.plan is None:
        return Lowered(graphs)
    probe = chosen.probe()
    if not probe.available:
        raise GolowError(f"{level}: {probe.missing}", probe.fix)
    return Lowered(graphs, chosen.plan(graphs[-1], workload, open_cache()))
