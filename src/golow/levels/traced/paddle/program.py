"""The worker of the `paddle` level: runs the source that the level wrote into its cache.

``python -m golow.levels.traced.paddle.program VARIANT FOLDER [LAST]`` speaks the worker protocol.
VARIANT is ``dynamic`` or ``static``. FOLDER has source and graph, LAST those of an epoch's smaller
last batch. It imports PaddlePaddle, but not PyTorch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from golow.levels.traced.paddle.execution import Execution
from golow.levels.traced.paddle.level import STATIC
from golow.levels.traced.program import SourceProgram
from golow.lower.ir.graph import Graph
from golow.records.workload import Workload
from golow.worker.cores import keep_to
from golow.worker.serve import run


class Paddle(SourceProgram):
    """A workload run by PaddlePaddle."""

    level = "paddle"

    def __init__(self, variant: str, *folders: Path) -> None:
        super().__init__(*folders)
        self._static = variant == STATIC

    def opened(self, folder: Path, graph: Graph, workload: Workload) -> Execution:
        """Return what runs a program, without its weights."""
        return Execution(folder, graph, workload, self._static)


if __name__ == "__main__":
    # Gradients are computed in a separate thread, next to the one that waits for them.
    keep_to(int(os.environ["OMP_NUM_THREADS"]))
    run(lambda: Paddle(sys.argv[1], *map(Path, sys.argv[2:])))
