"""TensorFlow: the captured graph as the source of a `tf.function`, compiled by XLA or, as the
variant ``graph``, run by TensorFlow's own kernels; no PyTorch in the process."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from golow.levels.level import IDLE_NUMPY, Launch, Level, Variant
from golow.levels.lowering import version_of
from golow.levels.probe import Probe
from golow.levels.traced.lowered import passes, write_source
from golow.lower.ir.graph import Graph
from golow.records.errors import Unsupported
from golow.records.workload import Workload
from golow.workload.bundle import Bundle
from golow.workload.import_path import module_command

GRAPH = "graph"  # the variant


def probe() -> Probe:
    """TensorFlow must be installed; the probe does not import it."""
    if find_spec("tensorflow") is None:
        return Probe(False, "tensorflow is not installed", "pip install 'golow[tensorflow]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Write the graph, and the graph of an epoch's smaller last batch, as TensorFlow's source.

    The worker traces and compiles the source whenever it loads.
    """
    key = f"{version_of('tensorflow_cpu')} {version_of('tensorflow')} {variant}"
    write = source_without_xla if variant == GRAPH else source
    parts = [part for part in (bundle, bundle.last) if part is not None]
    folders = [write_source("tensorflow", passes, write, key, part, cache) for part in parts]
    return Launch(
        module_command(
            "golow.levels.traced.tensorflow.program",
            variant or "xla",
            *map(str, folders),
        ),
        environment={
            **IDLE_NUMPY,
            "TF_CPP_MIN_LOG_LEVEL": "2",  # errors alone
            "CUDA_VISIBLE_DEVICES": "-1",  # a build for GPUs would take one's memory
        },
    )


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph; this needs no TensorFlow."""
    from golow.levels.traced.tensorflow.writer import refused
    from golow.lower.ir.pass_runner import apply

    return refused(apply(graph, passes(workload)))


def source(graph: Graph, workload: Workload) -> str:
    """Return the source of the function for a lowered graph. Raises `Unsupported`."""
    from golow.levels.traced.tensorflow.writer import written_source

    return written_source(graph, workload)


def source_without_xla(graph: Graph, workload: Workload) -> str:
    """Source for TensorFlow's kernels, which lack some that XLA has."""
    from golow.levels.traced.tensorflow.kernels import require_kernels

    text = source(graph, workload)
    require_kernels(graph, workload)
    return text


LEVEL = Level(
    name="tensorflow",
    summary="the graph as a tf.function, compiled by XLA; no PyTorch in the process",
    needs="tensorflow",
    probe=probe,
    prepare=prepare,
    variants={GRAPH: Variant("without XLA: TensorFlow's kernels, with oneDNN", devices=("cpu",))},
    from_graph=True,
    passes=passes,
    refusals=refusals,
    source=source,
)
