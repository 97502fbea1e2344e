"""Shows a model's graph on its way to a level, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from golow.levels import ladder
from golow.levels.level import Level
from golow.levels.named_level import ChosenLevel
from golow.levels.nvidia.known_gpus import named
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import stages
from golow.lower.plan.plan import Plan
from golow.records.errors import GolowError
from golow.records.workload import Workload
from golow.storage.cache import open_cache
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared


class Lowered(NamedTuple):
    """The graph as captured and after each pass; the plan or the source, for a level that has one;
    and the kernels that it generates, if they were requested."""

    stages: tuple[Graph, ...]
    plan: Plan | None = None
    source: str = ""
    kernels: tuple[str, ...] = ()


def lower(
    prepared: Prepared,
    level: str = "",
    cache: Path | None = None,
    *,
    kernels: bool = False,
    gpu: str = "",
) -> Lowered:
    """Run the common passes on the workload's graph, then the level's passes if one is named.
    cache: folder for builds; golow's own by default. kernels: also give the code that the level
    generates. gpu: the name of the GPU to plan for, which may be missing here. Raises `GolowError`
    if the level does not use a graph, generates none or cannot run here, `Unsupported` if it lacks
    an operation."""
    workload = prepared.workload
    choice = ladder.choose(level, workload.mode, workload.device) if level else None
    if choice is not None:
        _require_all(choice, level, kernels, gpu)
    graphs = tuple(stages(capture(prepared).graph, CLEAN_UP))
    if choice is None:
        return Lowered(graphs)
    found = plan_of(graphs[-1], workload, choice, gpu, cache, kernels=kernels)
    return found._replace(stages=graphs + found.stages[1:])


def plan_of(
    graph: Graph,
    workload: Workload,
    choice: ChosenLevel,
    gpu: str = "",
    cache: Path | None = None,
    *,
    kernels: bool = False,
) -> Lowered:
    """Run the level's passes on a cleaned graph, and build its plan; as `lower` does it."""
    chosen = choice.level
    graphs: tuple[Graph, ...] = (graph,)
    if chosen.passes is not None:
        graphs = tuple(stages(graph, chosen.passes(workload)))
    if gpu and chosen.plan_for is not None:
        return Lowered(graphs, chosen.plan_for(graphs[-1], workload, choice.variant, named(gpu)))
    if chosen.source is not None:
        return Lowered(graphs, source=chosen.source(graphs[-1], workload))
    if chosen.plan is None:
        return Lowered(graphs)
    probe = chosen.probe()
    if not probe.available:
        raise GolowError(f"{choice.name}: {probe.missing}", probe.fix)
    given = (graphs[-1], workload, choice.variant, open_cache(cache))
    generated = chosen.kernels(*given) if kernels and chosen.kernels is not None else ()
    return Lowered(graphs, chosen.plan(*given), kernels=generated)


def _require_all(choice: ChosenLevel, level: str, kernels: bool, gpu: str) -> None:
    """Raise `GolowError` for what the level does not give."""
    chosen = choice.level
    if gpu:
        require_plan_for(choice, gpu)
    if not chosen.from_graph:
        known = _names(lambda item: item.from_graph)
        raise GolowError(f"{level} runs the module, not a graph", f"levels that lower: {known}.")
    if kernels and chosen.kernels is None:
        known = _names(lambda item: item.kernels is not None)
        raise GolowError(f"{level} generates no kernels", f"levels that do: {known}.")


def require_plan_for(choice: ChosenLevel, gpu: str) -> None:
    """Raise `GolowError` unless golow knows the GPU and the level has a plan for one that is not
    here."""
    named(gpu)
    if choice.level.plan_for is None:
        known = _names(lambda level: level.plan_for is not None)
        raise GolowError(f"{choice.name} has no plan for a GPU that is only named", f"use {known}.")
    if choice.variant not in ("", "autotune") or choice.settings:
        raise GolowError(
            f"{choice.name} has the plan of {choice.level.name}",
            f"use --level {choice.level.name}.",
        )


def _names(has: Callable[[Level], bool]) -> str:
    return ", ".join(level.name for level in ladder.LADDER if has(level))
