"""LibTorch: straight-line C++ emitted from the captured graph and compiled; no Python inside."""

from __future__ import annotations

from pathlib import Path

from golow.bundle import Bundle
from golow.levels.level import Launch, Level
from golow.levels.probe import Probe
from golow.record import Device, Unsupported


def probe(device: Device = "cpu") -> Probe:
    """A C++ compiler, and torch with its headers; for a GPU, a torch that was built with CUDA."""
    from golow.levels.libtorch import build

    return build.probe(device)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Emit the program and compile it, unless the cache holds the same program."""
    from golow.levels.libtorch import build
    from golow.levels.libtorch.placement import require_precision
    from golow.lower.passes import CLEAN_UP, apply

    workload, graph = bundle.workload, bundle.graph
    require_precision(workload)
    if graph is None:
        raise Unsupported("libtorch", "the workload could not be captured as a graph")
    artifact = build.build(apply(graph, CLEAN_UP), cache, workload.device)
    return Launch(
        (str(artifact.program),),
        build_seconds=artifact.build_seconds,
        cached=artifact.cached,
        artifact_bytes=artifact.bytes,
    )


LEVEL = Level(
    name="libtorch",
    summary="C++ emitted from the graph, calling ATen; no Python",
    needs="C++ compiler",
    probe=probe,
    prepare=prepare,
    from_graph=True,
    devices=("cpu", "cuda"),
)
