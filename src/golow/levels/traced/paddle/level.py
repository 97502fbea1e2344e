"""PaddlePaddle: the captured graph as the source of functions that run in Paddle's dynamic graph
or, as the variant ``static``, as static graphs of `paddle.jit.to_static`; no PyTorch in the
process."""

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

STATIC = "static"  # the variant


def probe() -> Probe:
    """PaddlePaddle must be installed; the probe does not import it. Another package has the name
    `paddle` on PyPI, so that the module alone says little."""
    if find_spec("paddle") is None or version_of("paddlepaddle") == "unknown":
        return Probe(False, "paddlepaddle is not installed", "pip install 'golow[paddle]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Write the graph, and the graph of an epoch's smaller last batch, as Paddle's source.

    The worker of ``static`` makes its programs whenever it loads.
    """
    key = version_of("paddlepaddle")
    parts = [part for part in (bundle, bundle.last) if part is not None]
    folders = [write_source("paddle", passes, source, key, part, cache) for part in parts]
    return Launch(
        module_command(
            "golow.levels.traced.paddle.program",
            variant or "dynamic",
            *map(str, folders),
        ),
        environment={
            **IDLE_NUMPY,
            "GLOG_minloglevel": "2",  # errors alone
            "FLAGS_paddle_num_threads": str(bundle.workload.threads),  # of MKL; one by default
            # Each thread of its executor would have a team of OpenMP threads of its own.
            "FLAGS_new_executor_serial_run": "1",
        },
    )


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph; this needs no Paddle."""
    from golow.levels.traced.paddle.writer import refused
    from golow.lower.ir.pass_runner import apply

    return refused(apply(graph, passes(workload)))


def source(graph: Graph, workload: Workload) -> str:
    """Return the source of the functions for a lowered graph. Raises `Unsupported`."""
    from golow.levels.traced.paddle.writer import written_source

    return written_source(graph, workload)


LEVEL = Level(
    name="paddle",
    summary="the graph in PaddlePaddle's dynamic graph; no PyTorch in the process",
    needs="paddlepaddle",
    probe=probe,
    prepare=prepare,
    variants={
        STATIC: Variant("the forward pass as a static graph: to_static", devices=("cpu",)),
    },
    from_graph=True,
    passes=passes,
    refusals=refusals,
    source=source,
)
