"""What the proof of timed iterations costs: blocks with a challenge against blocks without.

    python benchmarks/proof_overhead.py [--levels eager,onednn] [--blocks 20] [--device cuda]

Blocks alternate, so that drift and other programs affect both alike. The first ratio is that of the
times that the worker reports, which should be 1: nothing of the proof is inside an iteration. The
second is that of the whole blocks by the parent's clock, which is what a race pays.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from golow.check.marked_places import choose_spans
from golow.check.timed_results import Verifier
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.measure.block import Setting, warmup_iterations
from golow.measure.gpu.nvml import Card
from golow.measure.race import BLOCK_SECONDS, calibrate
from golow.records.comparison import Check, Sample, TensorError
from golow.worker.conversation import SETTLE_SECONDS
from golow.workload.bundle import write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request

WORKLOADS = "lenet5:8,resnet18:8:64,mobilenet_v2:8:96"  # model:batch:resolution
PASSED = TensorError(  # with a limit, on a CPU results are chained
    name="0/output/0",
    elements=1000,
    scale=1.0,
    error=0.0,
    eager_error=0.0,
    limit=1e-6,
    passed=True,
)


def main() -> None:
    """Measure every workload at every level, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", default="eager,onednn")
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--mode", default="infer", choices=("infer", "train"))
    parser.add_argument("--workloads", default=WORKLOADS, help="model:batch:resolution,...")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="default")
    given = parser.parse_args()
    table = Table(box=None)
    for title in ("model", "level", "iteration", "reported", "block", "race"):
        table.add_column(title, justify="left" if title in ("model", "level") else "right")
    for workload in given.workloads.split(","):
        model, batch, *resolution = workload.split(":")
        request = Request(
            model,
            batch=int(batch),
            resolution=int(resolution[0]) if resolution else None,
            mode=given.mode,
            device=given.device,
            precision=given.precision,
        )
        for level in given.levels.split(","):
            table.add_row(workload, level, *measure(request, level, given.blocks))
    Console().print(table)


def measure(request: Request, level: str, blocks: int) -> tuple[str, ...]:
    """An iteration's time, and the ratios: reported times, blocks, and blocks with their pause."""
    with tempfile.TemporaryDirectory() as folder, Starter() as starter, ExitStack() as open_:
        card = open_.enter_context(Card()) if request.device == "cuda" else None
        prepared = prepare(request)
        bundle, prepared = write_bundle(prepared, Path(folder) / "bundle")
        write_graph(prepared, bundle)
        choice = ladder.choose(level, request.mode, request.device)
        launch = choice.prepare(bundle, Path(folder) / "cache")
        passed = Check(verdict="match", tensors=(PASSED,))
        checks = {"baseline": passed, level: passed}
        verifier = Verifier(bundle.workload, choose_spans(bundle), checks, 0.001, "baseline")
        with starter.worker(level, launch, bundle) as worker:
            worker.load(bundle.folder)
            count = calibrate(worker, BLOCK_SECONDS, Setting(card))
            warmup = warmup_iterations(count)
            plain: list[Sample] = []
            proved: list[Sample] = []
            for number in range(blocks):
                verifier.begin_round(number if request.mode == "infer" else 0)
                plain.append(worker.time(count, warmup))
                challenge = verifier.challenge(number)
                proved.append(worker.time(count, warmup, challenge=challenge))
    pairs = list(zip(proved, plain, strict=True))
    reported = median(median(times(a)) / median(times(b)) for a, b in pairs)
    walls = median(a.wall_ns / b.wall_ns for a, b in pairs)
    pause = SETTLE_SECONDS * 1e9
    race = median((a.wall_ns + pause) / (b.wall_ns + pause) for a, b in pairs)
    iteration = median(ns for sample in plain for ns in times(sample)) / 1e6
    return f"{iteration:.2f} ms", f"{reported:.3f}", f"{walls:.3f}", f"{race:.3f}"


def times(sample: Sample) -> tuple[int, ...]:
    """Nanoseconds of the iterations, by the device's clock if there is one."""
    return sample.device_ns or sample.host_ns


if __name__ == "__main__":
    main()
