"""What a level that writes a source does before its worker starts: passes, refusals, and the folder
of source and graph in the cache."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from golow.lower.ir.graph import Graph, encode_graph
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.storage.files import CACHE_HINT, write_whole, writing
from golow.workload.bundle import Bundle

GRAPH, SOURCE = "graph.json", "step.py"

Source = Callable[[Graph, Workload], str]
Pass = Callable[[Graph], Graph]
Passes = Callable[[Workload], tuple[Pass, ...]]


def passes(workload: Workload, recurrences: Pass | None = None) -> tuple[Pass, ...]:
    """Return the passes to the vocabulary. In inference batch norms are folded; in training the
    forward pass is left, because a framework makes its own gradients and update. In half precision
    the graph then has its casts. recurrences: what becomes of recurrent layers; by default loops,
    as always in half precision, whose casts are within a step."""
    from golow.levels.traced.forward import forward_of_training
    from golow.levels.traced.halving import HALVES, autocast_forward, store_in_half
    from golow.lower.fuse.epilogue_fusion import fuse_padding
    from golow.lower.fuse.weight_folding import fold_batch_norm
    from golow.lower.ir.passes import eliminate_dead_code
    from golow.lower.recognise.recurrences import unfold_recurrences
    from golow.lower.vendor import CANONICAL

    half = HALVES.get(workload.precision)
    unfolded = unfold_recurrences if recurrences is None or half is not None else recurrences
    if workload.mode == "infer":
        stored = () if half is None else (_named(store_in_half, half),)
        return (unfolded, *CANONICAL, fuse_padding, fold_batch_norm, *stored, eliminate_dead_code)
    cast = () if half is None else (_named(autocast_forward, half),)
    first = (forward_of_training, unfolded)
    return (*first, *cast, *CANONICAL, fuse_padding, eliminate_dead_code)


def _named(run: Callable[[Graph, str], Graph], half: str) -> Pass:
    """A pass with its dtype, under its own name."""

    def named(graph: Graph) -> Graph:
        return run(graph, half)

    named.__name__ = run.__name__
    return named


def write_lowered(
    level: str, passes: Passes, source: Source, key: str, bundle: Bundle, cache: Path
) -> Path:
    """Write source and lowered graph into the cache; return their folder. key: what a build depends
    on further. Raises `Unsupported` for what the level cannot run."""
    from golow.lower.ir.passes import apply

    if bundle.graph is None:
        raise Unsupported(level, "the workload could not be captured as a graph")
    graph = apply(bundle.graph, passes(bundle.workload))
    text = source(graph, bundle.workload)
    data = encode_graph(msgspec.structs.replace(graph, history=()))
    whole = f"{key} {bundle.workload.threads}\n{text}"
    folder = cache / level / hashlib.sha256(data + whole.encode()).hexdigest()[:32]
    with writing(f"the cache {cache}", CACHE_HINT):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / GRAPH, data)
        write_whole(folder / SOURCE, text.encode())
    return folder


def version_of(package: str) -> str:
    """The version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:  # it can be imported, but has no metadata
        return "unknown"
