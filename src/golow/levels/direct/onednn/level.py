"""Runs the plan of the lowered graph by direct calls of oneDNN, without a framework."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from golow.levels.compiler import find_compiler
from golow.levels.direct.onednn.bindings.processor import processor
from golow.levels.level import IDLE_NUMPY, Launch, Level
from golow.levels.lowering import BUILT, lowered, write_lowered
from golow.levels.probe import Probe
from golow.lower.ir.graph import Graph, Pass
from golow.lower.plan.plan import Plan
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.storage.cache import read_sealed
from golow.workload.bundle import Bundle
from golow.workload.import_path import module_command

if TYPE_CHECKING:
    from golow.levels.direct.onednn.steps.built_plan import Built

PACKAGE = "onednn-cpu-gomp"


class Chosen(msgspec.Struct):
    """From the file of layouts: whether no other process used the cores while they were chosen."""

    clean: bool = True


def probe() -> Probe:
    """Look for an x86-64 CPU and the library, without loading it."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return Probe(False, f"oneDNN's wheels are for x86-64, not {platform.machine()}", "")
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return Probe(False, f"{PACKAGE} is not installed", "pip install 'golow[onednn]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Lower the graph, and the graph of an epoch's smaller last batch.

    The worker builds the plans from these graphs. On its first start it chooses layouts by
    measuring. Graphs and layouts are cached by graph, library, CPU and threads; layouts that were
    chosen on a busy machine are chosen again.
    """
    from golow.levels.direct.onednn.run.tuning import LAYOUTS_FILE

    folders = [_write_lowered(part, cache) for part in (bundle, bundle.last) if part is not None]
    if not _read_choice(folders[0] / LAYOUTS_FILE).clean:
        for name in (BUILT, LAYOUTS_FILE):
            (folders[0] / name).unlink(missing_ok=True)
    return Launch(
        module_command("golow.levels.direct.onednn.run.program", *map(str, folders)),
        environment=IDLE_NUMPY,
        built_by_loading=folders[0] / BUILT,
        build_measures=True,
    )


def passes(workload: Workload) -> tuple[Pass, ...]:
    """Return the passes from the captured graph to the one that a plan is built of."""
    from golow.levels.direct.onednn.passes import passes as ordered

    return ordered(workload)


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph, as far as this is known without
    library."""
    from golow.levels.direct.onednn.planning import refused_nodes
    from golow.lower.ir.pass_runner import apply

    return refused_nodes(apply(graph, passes(workload)))


def plan(graph: Graph, workload: Workload, variant: str, cache: Path) -> Plan:
    """Return the plan of a lowered graph. Its layouts are those that an earlier start chose here,
    otherwise those that the library prefers."""
    return _built(graph, workload, cache).plan


def kernels(graph: Graph, workload: Workload, variant: str, cache: Path) -> tuple[str, ...]:
    """Return the generated kernels of that plan, each once."""
    return _built(graph, workload, cache).codes


def _built(graph: Graph, workload: Workload, cache: Path) -> Built:
    from golow.levels.direct.onednn.bindings.library import Engine
    from golow.levels.direct.onednn.planning import build_plan
    from golow.levels.direct.onednn.run import tuning
    from golow.levels.direct.onednn.steps.built_plan import Switches

    layouts = tuning.read(write_graph(graph, workload.threads, cache) / tuning.LAYOUTS_FILE, [])
    layouts = layouts or tuning.Layouts(positions={})
    generates = find_compiler() is not None
    return build_plan(graph, Engine(), layouts.tag, Switches(workload.seed), generates)


def _write_lowered(bundle: Bundle, cache: Path) -> Path:
    """Write the bundle's lowered graph and return its cache folder. Raises `Unsupported` for what
    the level cannot run, as far as this is known without its library."""
    from golow.levels.direct.onednn.planning import require_runnable

    graph = lowered("onednn", bundle, passes)
    require_runnable(graph)
    return write_graph(graph, bundle.workload.threads, cache)


def write_graph(graph: Graph, threads: int, cache: Path) -> Path:
    """Write the graph into the cache folder for this graph, library, CPU and number of threads;
    return it."""
    compiler = find_compiler()  # without one, other steps are timed
    key = f"{version(PACKAGE)} {processor()} {threads} {compiler}"
    return write_lowered("onednn", graph, key, cache)


def _read_choice(layouts: Path) -> Chosen:
    data = read_sealed(layouts, [])
    # If there is none yet, or a damaged one, the worker writes it.
    return Chosen() if data is None else msgspec.json.decode(data, type=Chosen)


LEVEL = Level(
    name="onednn",
    summary="the plan, by direct oneDNN calls; no framework",
    needs="x86-64 CPU, onednn-cpu-gomp",
    probe=probe,
    prepare=prepare,
    from_graph=True,
    passes=passes,
    plan=plan,
    kernels=kernels,
    refusals=refusals,
    ranked="also",
)
