"""JAX: the captured graph as the source of a JAX function, compiled by XLA; no PyTorch in the
process."""

from __future__ import annotations

import re
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
OLDEST = (0, 7)
INSTALL_CUDA = "pip install 'golow[jax-cuda]'"

ON_GPU = {
    "JAX_PLATFORMS": "cuda",
    "JAX_CUDA_VISIBLE_DEVICES": "0",  # JAX would open a context on every one
    # By default JAX takes three quarters of the memory, which other levels need.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
}


def probe() -> Probe:
    """JAX must be installed, and not too old; the probe does not import it."""
    if find_spec("jax") is None or find_spec("jaxlib") is None:
        return Probe(False, "jax is not installed", "pip install 'golow[jax]'")
    found = version_of("jax")
    if _parts(found) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        missing = f"jax {found} is too old, the level needs {oldest}"
        return Probe(False, missing, "pip install --upgrade 'golow[jax]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Write the graph, and the graph of an epoch's smaller last batch, as JAX's source.

    The worker compiles the source when it first loads; JAX's persistent cache in the same folder
    then has what XLA made. On a GPU XLA chooses algorithms by timing them.
    """
    workload = bundle.workload
    if workload.device == "cuda":
        require_gpu()
    key = f"{version_of('jax')} {version_of('jaxlib')} {workload.device}"
    parts = [part for part in (bundle, bundle.last) if part is not None]
    folders = [write_lowered("jax", source, key, part, cache) for part in parts]
    return Launch(
        (sys.executable, "-m", "golow.levels.jax.program", *map(str, folders)),
        environment={
            **IDLE_NUMPY,
            **(ON_GPU if workload.device == "cuda" else _on_cpu(workload.threads)),
        },
        built_by_loading=folders[0] / BUILT,
        build_measures=workload.device == "cuda",
    )


def _on_cpu(threads: int) -> dict[str, str]:
    return {
        "JAX_PLATFORMS": "cpu",
        # The size of XLA's thread pool, by default the number of cores.
        "NPROC": str(threads),
        # The thread that starts an iteration runs it; otherwise a further one does.
        "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false",
    }


def require_gpu() -> None:
    """Raise `Unsupported` unless JAX has its part for GPUs, and golow NVIDIA's bindings."""
    if not any(_is_installed(f"jax-cuda{major}-plugin") for major in (12, 13)):
        raise Unsupported("jax", f"JAX is installed without CUDA: {INSTALL_CUDA}")
    for package in ("cuda-bindings", "cuda-core"):
        if not _is_installed(package):
            raise Unsupported("jax", f"{package} is not installed: {INSTALL_CUDA}")


def _is_installed(package: str) -> bool:
    return version_of(package) != "unknown"


def _parts(found: str) -> tuple[int, ...]:
    """The first two numbers of a version; an unknown one counts as new."""
    numbers = re.findall(r"\d+", found)[:2]
    return tuple(map(int, numbers)) or OLDEST


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
    devices=("cpu", "cuda"),
)
