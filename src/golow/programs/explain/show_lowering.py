"""Shows a model's graph on its way to a level, stage by stage."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from golow.levels import ladder
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import stages
from golow.lower.plan.plan import Plan
from golow.records.errors import GolowError
from golow.storage.cache import open_cache
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared


class Lowered(NamedTuple):
    """The graph as captured and after each pass; the plan or the source, for a level that has
    one; and the kernels that it generates, if they were asked for."""

    stages: tuple[Graph, ...]
    plan: Plan | None = None
    source: str = ""
    kernels: tuple[str, ...] = ()


def lower(
    prepared: Prepared, level: str = "", cache: Path | None = None, *, kernels: bool = False
) -> Lowered:
    """Run the common passes on the workload's graph, then the level's passes if one is named.
    cache: folder for builds; golow's own by default. kernels: also give the code that the level
    generates. Raises `GolowError` if the level does not use a graph, generates none or cannot run
    here, `Unsupported` if it lacks an operation."""
    workload = prepared.workload
    graphs = tuple(stages(capture(prepared).graph, CLEAN_UP))
    if not level:
        return Lowered(graphs)
    named = ladder.choose(level, workload.mode, workload.device)
    chosen = named.level
    if not chosen.from_graph:
        known = ", ".join(item.name for item in ladder.LADDER if item.from_graph)
        raise GolowError(f"{level} runs the module, not a graph", f"levels that lower: {known}.")
    if kernels and chosen.kernels is None:
        known = ", ".join(item.name for item in ladder.LADDER if item.kernels is not None)
        raise GolowError(f"{level} generates no kernels", f"levels that do: {known}.")
    if chosen.passes is not None:
        graphs += tuple(stages(graphs[-1], chosen.passes(workload)))[1:]
    if chosen.source is not None:
        return Lowered(graphs, source=chosen.source(graphs[-1], workload))
    if chosen.plan is None:
        return Lowered(graphs)
    probe = chosen.probe()
    if not probe.available:
        raise GolowError(f"{level}: {probe.missing}", probe.fix)
    given = (graphs[-1], workload, named.variant, open_cache(cache))
    generated = chosen.kernels(*given) if kernels and chosen.kernels is not None else ()
    return Lowered(graphs, chosen.plan(*given), kernels=generated)
