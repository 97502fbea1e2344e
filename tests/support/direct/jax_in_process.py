"""The level `jax` in the test's own process: `compute` writes and runs the real source."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import jax

from golow.levels.traced.execution import SourceExecution
from golow.levels.traced.jax import level as level
from golow.levels.traced.jax.execution import Execution
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload
from support.direct import source_in_process
from support.direct.in_process import Network, Tensors
from support.direct.source_in_process import batch_of

__all__ = ["batch_of", "compute", "loaded", "lower"]

lower = partial(source_in_process.lower, passes=level.passes)


def loaded(
    network: Network, kind: type[Execution] = Execution
) -> AbstractContextManager[SourceExecution]:
    """The source, written and imported, with the network's weights."""
    return source_in_process.loaded(network, level.source, partial(opened, kind))


def compute(network: Network, kind: type[Execution] = Execution) -> Tensors:
    """What the level gives in `STEPS` iterations, by ``STEP/KIND/TARGET``."""
    return source_in_process.compute(network, level.source, partial(opened, kind))


def opened(kind: type[Execution], folder: Path, graph: Graph, workload: Workload) -> Execution:
    """Without JAX's persistent cache: the folder goes away."""
    execution = kind(folder, graph, workload)
    jax.config.update("jax_enable_compilation_cache", False)
    return execution
