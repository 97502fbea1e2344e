"""JAX: the captured graph as the source of a JAX function, compiled by XLA; no PyTorch in the
process."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import msgspec

from golow.files import CACHE_HINT, write_whole, writing
from golow.levels.level import IDLE_NUMPY, Launch, Level
from golow.levels.probe import Probe
from golow.lower.graph import Graph, encode_graph
from golow.record import Unsupported, Workload
from golow.workload.bundle import Bundle

GRAPH, SOURCE, COMPILED, BUILT = "graph.json", "step.py", "compiled", "built.json"


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
    folders = [_write_lowered(part, cache) for part in (bundle, bundle.last) if part is not None]
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


def passes(workload: Workload) -> tuple[Callable[[Graph], Graph], ...]:
    """Return the passes to the vocabulary. In inference batch norms are folded; in training the
    forward pass is left, because JAX makes its own gradients and update."""
    from golow.levels.jax.forward import forward_of_training
    from golow.lower.folding import fold_batch_norm
    from golow.lower.fusion import fuse_padding
    from golow.lower.passes import eliminate_dead_code
    from golow.lower.vendor import CANONICAL

    if workload.mode == "infer":
        return (*CANONICAL, fuse_padding, fold_batch_norm, eliminate_dead_code)
    return (forward_of_training, *CANONICAL, fuse_padding, eliminate_dead_code)


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph; this needs no JAX."""
    from golow.levels.jax.writer import refused_nodes
    from golow.lower.passes import apply

    return refused_nodes(apply(graph, passes(workload)))


def source(graph: Graph, workload: Workload) -> str:
    """Return the source of the JAX function for a lowered graph. Raises `Unsupported`."""
    from golow.levels.jax.writer import written_source

    return written_source(graph, workload)


def _write_lowered(bundle: Bundle, cache: Path) -> Path:
    """Write source and lowered graph into the cache; return their folder. Raises `Unsupported` for
    what the level cannot run."""
    from golow.lower.passes import apply

    if bundle.graph is None:
        raise Unsupported("jax", "the workload could not be captured as a graph")
    graph = apply(bundle.graph, passes(bundle.workload))
    text = source(graph, bundle.workload)
    data = encode_graph(msgspec.structs.replace(graph, history=()))
    key = f"{_version('jax')} {_version('jaxlib')} {bundle.workload.threads}\n{text}"
    folder = cache / "jax" / hashlib.sha256(data + key.encode()).hexdigest()[:32]
    with writing(f"the cache {cache}", CACHE_HINT):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / GRAPH, data)
        write_whole(folder / SOURCE, text.encode())
    return folder


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # it can be imported, but has no metadata
        return "unknown"


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
