"""Lowers a bundle's graph for a level that executes it, and writes it into the cache, where the
level's worker reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from golow.lower.ir.graph import Graph, Pass, encode_graph
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.storage.files import CACHE_HINT, write_whole, writing
from golow.workload.bundle import Bundle

GRAPH, BUILT = "graph.json", "built.json"  # in the cache folder

Passes = Callable[[Workload], tuple[Pass, ...]]


def lowered(level: str, bundle: Bundle, passes: Passes) -> Graph:
    """Return the bundle's graph after the level's passes. Raises `Unsupported` if there is none."""
    from golow.lower.ir.pass_runner import apply

    if bundle.graph is None:
        raise Unsupported(level, "the workload could not be captured as a graph")
    return apply(bundle.graph, passes(bundle.workload))


def write_lowered(
    level: str, graph: Graph, key: str, cache: Path, further: Mapping[str, str] | None = None
) -> Path:
    """Write a lowered graph into the level's cache folder for it; return that folder.

    key: what the build of its program depends on besides the graph. further: texts by file name.
    Raises `GolowError` if the cache cannot be written.
    """
    data = encode_graph(msgspec.structs.replace(graph, history=()))
    folder = cache / level / hashlib.sha256(data + key.encode()).hexdigest()[:32]
    with writing(f"the cache {cache}", CACHE_HINT):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / GRAPH, data)
        for name, text in (further or {}).items():
            write_whole(folder / name, text.encode())
    return folder


def version_of(package: str) -> str:
    """The version of an installed package; ``unknown`` for one that has no metadata."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
