"""The worker of the `tensorflow` level: runs the source that the level wrote into its cache.

``python -m golow.levels.traced.tensorflow.program VARIANT FOLDER [LAST]`` speaks the worker
protocol. VARIANT is ``xla`` or ``graph``. FOLDER has source and graph, LAST those of an epoch's
smaller last batch. It imports TensorFlow, but not PyTorch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from golow.levels.traced.program import SourceProgram
from golow.levels.traced.tensorflow.execution import Execution
from golow.levels.traced.tensorflow.level import GRAPH
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload
from golow.worker.cores import keep_to
from golow.worker.serve import run


class TensorFlow(SourceProgram):
    """A workload run by TensorFlow."""

    level = "tensorflow"

    def __init__(self, variant: str, *folders: Path) -> None:
        super().__init__(*folders)
        self._xla = variant != GRAPH

    def opened(self, folder: Path, graph: Graph, workload: Workload) -> Execution:
        """Return what runs a program, without its weights. That of an epoch's last batch has the
        variables of the first."""
        shared = None if folder == self._folders[0] else self.execution.state
        return Execution(folder, graph, workload, self._xla, shared)


if __name__ == "__main__":
    # A function computes in TensorFlow's pool and, at times, in the thread that waits for it.
    keep_to(int(os.environ["OMP_NUM_THREADS"]))
    run(lambda: TensorFlow(sys.argv[1], *map(Path, sys.argv[2:])))
