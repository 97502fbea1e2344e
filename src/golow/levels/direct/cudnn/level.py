"""Runs the plan of the lowered graph by direct calls of cuDNN, cuBLASLt and golow's own kernels, in
one CUDA graph and without a framework."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, cast

from golow.levels import gpu
from golow.levels.level import IDLE_NUMPY, Launch, Level, Variant
from golow.levels.lowering import BUILT, lowered, write_lowered
from golow.levels.nvidia.known_gpus import KnownGpu
from golow.levels.probe import Probe
from golow.lower.ir.graph import Graph, Pass
from golow.lower.plan.plan import Plan
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.workload.bundle import Bundle
from golow.workload.import_path import module_command

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines
    from golow.levels.direct.cudnn.steps.built_plan import Built

PACKAGES = ("nvidia-cudnn-frontend", "cuda-core", "cuda-bindings")


def probe() -> Probe:
    """Look for a GPU and the packages, without loading any of them."""
    if not gpu.has_gpu():
        return Probe(False, "there is no NVIDIA GPU", "run it on a machine with one")
    for package in PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            return Probe(False, f"{package} is not installed", "pip install 'golow[cudnn]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Lower the graph, and the graph of an epoch's smaller last batch, whose engines are not timed.

    The worker builds the plans from these graphs. On its first start it compiles kernels and
    chooses engines, and caches both by source, shapes, GPU and library.
    """
    folders = [_write_lowered(bundle, variant, cache)]
    if bundle.last is not None:
        folders.append(_write_lowered(bundle.last, "", cache))
    arguments = (*variant.split(), *map(str, folders))
    return Launch(
        module_command("golow.levels.direct.cudnn.run.program", *arguments),
        environment=IDLE_NUMPY,
        built_by_loading=folders[0] / BUILT,
        build_measures=variant == "autotune",
    )


def passes(workload: Workload) -> tuple[Pass, ...]:
    """Return the passes from the captured graph to the one that a plan is built of."""
    from golow.levels.direct.cudnn.passes import passes as ordered

    return ordered(workload)


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph, as far as this is known without
    libraries and GPU."""
    from golow.levels.direct.cudnn.planning import refused_nodes
    from golow.lower.ir.pass_runner import apply

    return refused_nodes(apply(graph, passes(workload)))


def plan(graph: Graph, workload: Workload, variant: str, cache: Path) -> Plan:
    """Return the plan of a lowered graph. Its engines are those that an earlier start of this
    variant chose here; otherwise they are chosen now. Needs the GPU, since it decides which engines
    exist."""
    return _built(graph, workload, variant, cache).plan


def plan_for(graph: Graph, workload: Workload, variant: str, gpu: KnownGpu) -> Plan:
    """Return the plan of a lowered graph for a GPU that may be missing here, without its libraries:
    its engines are not chosen. What ``autotune`` measures is predicted from the GPU's figures.
    Raises `Unsupported` as `plan` does."""
    from golow.levels.direct.cudnn.engines.unchosen import UnchosenEngines
    from golow.levels.direct.cudnn.planning import build_plan
    from golow.levels.direct.cudnn.problems.precision import TYPES

    engines = cast("Engines", UnchosenEngines(gpu, times=variant == "autotune"))
    return build_plan(graph, engines, TYPES[workload.precision], workload.batches).plan


def kernels(graph: Graph, workload: Workload, variant: str, cache: Path) -> tuple[str, ...]:
    """Return the generated kernels of that plan as text to read."""
    from golow.levels.direct.cudnn.run.kernel_listing import kernel_texts

    return kernel_texts(_built(graph, workload, variant, cache))


def _built(graph: Graph, workload: Workload, variant: str, cache: Path) -> Built:
    from golow.levels.direct.cudnn.bindings.device import Gpu
    from golow.levels.direct.cudnn.engines.engines import Engines
    from golow.levels.direct.cudnn.planning import build_plan
    from golow.levels.direct.cudnn.problems.precision import TYPES

    home = _write_graph(graph, workload, variant, cache).parent
    autotune = variant == "autotune"
    engines = Engines(Gpu(home / "kernels"), home / "engines", autotune=autotune)
    return build_plan(graph, engines, TYPES[workload.precision], workload.batches)


def _write_lowered(bundle: Bundle, variant: str, cache: Path) -> Path:
    """Write the bundle's lowered graph and return its cache folder. Raises `Unsupported` for what
    the level cannot run, as far as this is known without its libraries."""
    from golow.levels.direct.cudnn.planning import require_runnable

    graph = lowered("cudnn", bundle, passes)
    require_runnable(graph)
    return _write_graph(graph, bundle.workload, variant, cache)


def _write_graph(graph: Graph, workload: Workload, variant: str, cache: Path) -> Path:
    """Write the graph into the cache folder for this graph, precision and variant; return it."""
    versions = " ".join(version(package) for package in PACKAGES)
    return write_lowered("cudnn", graph, f"{versions} {workload.precision} {variant}", cache)


LEVEL = Level(
    name="cudnn",
    summary="the plan, by direct cuDNN and cuBLASLt calls in one CUDA graph; no framework",
    needs="NVIDIA GPU, nvidia-cudnn-frontend, cuda-core",
    probe=probe,
    prepare=prepare,
    from_graph=True,
    passes=passes,
    plan=plan,
    plan_for=plan_for,
    kernels=kernels,
    refusals=refusals,
    ranked="also",
    devices=("cuda",),
    variants={
        "autotune": Variant("engines chosen by timing them instead of by the library's heuristics")
    },
)
