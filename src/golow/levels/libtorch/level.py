"""LibTorch: straight-line C++ emitted from the captured graph and compiled; no Python inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from golow.levels.level import Launch, Level
from golow.levels.probe import Probe
from golow.lower.ir.graph import Graph
from golow.records.errors import Unsupported
from golow.records.workload import Device, Workload
from golow.workload.bundle import Bundle


def probe(device: Device = "cpu") -> Probe:
    """Needs a C++ compiler and torch with its headers; for a GPU, a torch built with CUDA."""
    from golow.levels.libtorch import build

    return build.probe(device)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Emit the program and compile it, unless the cache holds the same program."""
    from golow.levels.libtorch import build
    from golow.levels.libtorch.placement import products

    workload = bundle.workload
    artifact = build.build(_step(bundle), cache, workload.device, products(workload))
    return Launch(
        (str(artifact.program),),
        build_seconds=artifact.build_seconds,
        cached=artifact.cached,
        artifact_bytes=artifact.bytes,
        notes=artifact.notes,
    )


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what has no C++ form in a cleaned graph. Of the operations that cannot run under
    autocast it names the first alone."""
    from golow.levels.libtorch.emit import not_emitted
    from golow.levels.libtorch.placement import products, with_casts
    from golow.lower.ir.clean_up import CLEAN_UP
    from golow.lower.ir.pass_runner import apply
    from golow.lower.recognise.plain_calls import to_plain_calls

    dtype, unfolded = products(workload), to_plain_calls(graph)
    graph = graph if unfolded is graph else apply(unfolded, CLEAN_UP)
    try:
        graph = with_casts(graph, dtype)
    except Unsupported as refusal:
        yield refusal
        dtype = "float32"
    yield from not_emitted(graph, workload.device, dtype)


def _step(bundle: Bundle) -> Graph:
    """The bundle's graph, with the number of samples left open as far as possible. In training it
    also covers the smaller last batch."""
    from golow.levels.libtorch.batch_size import step_for_any, step_for_both

    last = bundle.last if bundle.workload.mode == "train" else None
    graph = _graph(bundle)
    if last is None:
        return step_for_any(graph, bundle.workload.batch)
    return step_for_both(bundle, graph, last, _graph(last))


def inference_library(bundle: Bundle, cache: Path) -> Path:
    """The network as a library of PyTorch's operators, compiled unless the cache holds it."""
    from golow.levels.libtorch import build

    return build.build_library(_step(bundle), cache, bundle.workload.device).program


def _graph(bundle: Bundle) -> Graph:
    from golow.levels.libtorch.placement import products, with_casts
    from golow.lower.ir.clean_up import CLEAN_UP
    from golow.lower.ir.pass_runner import apply
    from golow.lower.recognise.plain_calls import to_plain_calls

    graph = bundle.graph
    if graph is None:
        raise Unsupported("libtorch", "the workload could not be captured as a graph")
    return with_casts(apply(graph, (to_plain_calls, *CLEAN_UP)), products(bundle.workload))


LEVEL = Level(
    name="libtorch",
    summary="C++ emitted from the graph, calling ATen; no Python",
    needs="C++ compiler",
    probe=probe,
    prepare=prepare,
    from_graph=True,
    devices=("cpu", "cuda"),
    refusals=refusals,
)
