"""What golow adds to an iteration and to a block of them, measured with an idle worker.

    python benchmarks/harness_overhead.py

The worker is golow's plant without any work, so that all that is left is golow's own: the two
readings of the clock and the call between them, and around a block the request, its answer, the
collector and the readings of the run queue. Only the first is inside the times that golow reports.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from golow.worker.client import Worker
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

ITERATIONS = 1000  # the most that a block has
BLOCKS = 200


def main() -> None:
    """Measure, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(Request(nn.Linear(8, 8, bias=False), torch.randn(8, 8)))
        bundle, _ = write_bundle(prepared, Path(folder) / "bundle")
        command = (sys.executable, "-m", "golow.worker.plant", "--products", "0")
        with Worker("nothing", command, threads=1) as worker:
            worker.load(bundle.folder)
            worker.time(ITERATIONS, ITERATIONS)
            blocks = [worker.time(ITERATIONS, 1).host_ns for _ in range(BLOCKS)]
            figures = [float(np.median(block)) for block in blocks]
            request = [timed(lambda: worker.time(1, 0)) for _ in range(BLOCKS)]
            answer = [timed(worker.allocated_peak) for _ in range(BLOCKS)]
    table = Table(box=None)
    for title in ("what golow adds", "median", "5% to 95%"):
        table.add_column(title, justify="left" if title == "what golow adds" else "right")
    for name, values, unit, scale in (
        ("to an iteration, in the time reported", figures, "ns", 1),
        ("to a block of them, outside that time", request, "us", 1000),
        ("of that the request and its answer", answer, "us", 1000),
    ):
        low, middle, high = np.percentile(values, [5, 50, 95]) / scale
        table.add_row(name, f"{middle:.0f} {unit}", f"{low:.0f} to {high:.0f} {unit}")
    Console().print(table)


def timed(ask: Callable[[], object]) -> int:
    """Nanoseconds that the parent waits."""
    start = time.perf_counter_ns()
    ask()
    return time.perf_counter_ns() - start


if __name__ == "__main__":
    main()
