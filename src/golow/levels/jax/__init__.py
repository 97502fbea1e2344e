"""JAX: the captured graph as the source of a JAX function, compiled by XLA; no PyTorch in the
process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from golow.levels.level import IDLE_NUMPY, Launch, Level
from golow.levels.probe import Probe
from golow.levels.sources.lowered import passes, version_of, write_lowered
from golow.lower.graph import Graph
from golow.record import Unsupported, Workload
from golow.workload.bundle import Bundle

COMPILED, BUILT = "compiled", "built.json"


def probe() -> Probe:
    """JAX must be installed; the probe does not import it."""
    if find_spec("jax") is None or find_spec("jaxlib") is None:
        return Probe(False, "jax is not installed", "pip install 'golow[jax]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Write the graph, and the graph of an epoch's smaller last batch, as JAX's source.

    The worker compiles the source when it first loads; JAX's persistent cache in the same folder
    then has what XLA made.
    """
    key = f"{version_of('jax')} {version_of('jaxlib')}"
    parts = [part for part in (bundle, bundle.last) if part is not None]
    folders = [write_lowered("jax", source, key, part, cache) for part in parts]
    return Launch(
        (sys.executable, "-m", "golow.levels.jax.program", *map(str, folders)),
        environment={
            **IDLE_NUMPY,
            # The size of XLA's thread pool, by default the number of cores.
            "NPROC": str(bundle.workload.threads),
            "JAX_PLATFORMS": "cpu",
            # The thread that starts an iteration runs it; otherwise a further one does.
            "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
        },
        built_by_loading=folders[0] / BUILT,
    )


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph; this needs no JAX."""
    from golow.levels.jax.writer import Writer
    from golow.lower.passes import apply

    return Writer.refused(apply(graph, passes(workload)))


def source(graph: Graph, workload: Workload) -> str:
    """Return the source of the JAX function for a lowered graph. Raises `Unsupported`."""
    from golow.levels.jax.writer import written_source

    return written_source(graph, workload)


LEVEL = Level(
    name="jax",
    summary="the graph as a JAX function, compiled by XLA; no PyTorch in the process",
    needs="jax",
    probe=probe,
    prepare=prepare,
    from_graph=True,
    passes=passes,
    refusals=refusals,
    source=source,
)
