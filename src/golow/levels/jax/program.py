"""The worker of the level `jax`: runs the source that the level wrote into its cache.

``python -m golow.levels.jax.program FOLDER [LAST]`` speaks the worker protocol. FOLDER has source
and graph, LAST those of an epoch's smaller last batch. It imports JAX, and no PyTorch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from golow.levels.jax.execution import Execution
from golow.levels.sources.program import SourceProgram
from golow.lower.graph import Graph
from golow.record import Workload
from golow.worker.cores import keep_to
from golow.worker.serve import run


class Jax(SourceProgram):
    """A workload run by JAX."""

    level = "jax"

    def opened(self, folder: Path, graph: Graph, workload: Workload) -> Execution:
        """Return what runs a program, without its weights."""
        return Execution(folder, graph, workload)


if __name__ == "__main__":
    if os.environ["JAX_PLATFORMS"] == "cpu":
        # XLA computes in its pool and, at times, in the thread that waits for it, so that a pool
        # of n threads can use n + 1 cores.
        keep_to(int(os.environ["NPROC"]))
    run(lambda: Jax(*map(Path, sys.argv[1:])))
