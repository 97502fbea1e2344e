"""What the proof of timed iterations costs: blocks with a challenge against blocks without.

    python benchmarks/proof_overhead.py [--levels eager,onednn] [--blocks 20]

Blocks alternate, so that drift and other programs affect both alike. The first ratio is that of the
times that the worker reports, which should be 1: nothing of the proof is inside an iteration. The
second is that of the whole blocks by the parent's clock, which is what a race pays.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from golow.check.timed_results import Verifier, choose_span
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.measure.block import warmup_iterations
from golow.measure.race import calibrate
from golow.record import Mode, Sample
from golow.worker.conversation import SETTLE_SECONDS
from golow.workload.bundle import write_bundle
from golow.workload.captured import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request

WORKLOADS: list[tuple[str, int, int | None]] = [
    ("lenet5", 8, None),
    ("resnet18", 8, 64),
    ("mobilenet_v2", 8, 96),
]


def main() -> None:
    """Measure every workload at every level, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", default="eager,onednn")
    parser.add_argument("--blocks", type=int, default=20)
    parser.add_argument("--mode", default="infer", choices=("infer", "train"))
    given = parser.parse_args()
    table = Table(box=None)
    for title in ("model", "level", "iteration", "reported", "block", "race"):
        table.add_column(title, justify="left" if title in ("model", "level") else "right")
    for model, batch, resolution in WORKLOADS:
        for level in given.levels.split(","):
            row = measure(model, batch, resolution, given.mode, level, given.blocks)
            table.add_row(model, level, *row)
    Console().print(table)


def measure(
    model: str, batch: int, resolution: int | None, mode: Mode, level: str, blocks: int
) -> tuple[str, ...]:
    """An iteration's time, and the ratios: reported times, blocks, and blocks with their pause."""
    with tempfile.TemporaryDirectory() as folder, Starter() as starter:
        prepared = prepare(Request(model, batch=batch, resolution=resolution, mode=mode))
        bundle, prepared = write_bundle(prepared, Path(folder) / "bundle")
        write_graph(prepared, bundle)
        choice = ladder.choose(level, mode)
        launch = choice.level.prepare(bundle, choice.variant, Path(folder) / "cache")
        verifier = Verifier(bundle.workload, choose_span(bundle), {}, 0.001, "eager")
        with starter.worker(level, launch, bundle) as worker:
            worker.load(bundle.folder)
            count = calibrate(worker, 0.15)
            warmup = warmup_iterations(count)
            plain: list[Sample] = []
            proved: list[Sample] = []
            for number in range(blocks):
                verifier.begin_round(0 if mode == "infer" else number)
                plain.append(worker.time(count, warmup))
                challenge = verifier.challenge(number, count + warmup)
                proved.append(worker.time(count, warmup, challenge=challenge))
    pairs = list(zip(proved, plain, strict=True))
    reported = median(median(a.host_ns) / median(b.host_ns) for a, b in pairs)
    walls = median(a.wall_ns / b.wall_ns for a, b in pairs)
    pause = SETTLE_SECONDS * 1e9
    race = median((a.wall_ns + pause) / (b.wall_ns + pause) for a, b in pairs)
    iteration = median(ns for sample in plain for ns in sample.host_ns) / 1e6
    return f"{iteration:.2f} ms", f"{reported:.3f}", f"{walls:.3f}", f"{race:.3f}"


if __name__ == "__main__":
    main()
