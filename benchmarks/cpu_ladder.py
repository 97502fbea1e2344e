"""How fast is the lowest level on a CPU? oneDNN called directly against every runtime of a user.

    python benchmarks/cpu_ladder.py [--only resnet50] [--page docs/results/cpu.md]

One race a row: eager, channels_last, TorchScript, compile, compile:freezing, ONNX Runtime, OpenVINO
and onednn in turn, two threads, float32. A row gives the time of ``onednn``, the best of the
others, and the ratio other / onednn with its 95% interval over the rounds of the race, medians of
each level's block; above 1 onednn is faster. Prints the table as Markdown, with machine and
command; --page puts it between the marks of a page, ``<!-- cpu: begin -->`` and ``<!-- cpu: end
-->``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import stats

import golow
from golow.records.comparison import Comparison, Run
from golow.records.errors import GolowError
from golow.records.workload import Mode
from page_part import put_into

INFERENCE = (
    *(("resnet50", b, r) for b, r in ((1, 32), (1, 64), (1, 224), (8, 64), (8, 224))),
    *(("resnet50", b, r) for b, r in ((32, 32), (32, 96))),
    *(
        (model, b, r)
        for model in ("alexnet", "vgg16", "resnet18", "mobilenet_v2")
        for b, r in ((1, 224), (8, 64))
    ),
)
TRAINING = (("resnet50", 8, 64), ("resnet50", 32, 32))
PEERS = {
    "infer": "eager eager:channels_last torchscript compile compile:freezing onnxruntime openvino",
    "train": "eager eager:channels_last torchscript compile",
}
OURS = "onednn"


class Row(NamedTuple):
    """What one race brought. ratio: best peer's time over onednn's, with its interval."""

    model: str
    mode: str
    batch: int
    resolution: int
    ours: float
    best: str
    ratio: tuple[float, float, float]
    over_eager: tuple[float, float, float]
    over_compile: tuple[float, float, float] | None
    arena: float
    eager_peak: float
    resident: float
    least_resident: float
    contended: float
    failed: tuple[str, ...]


def main() -> int:
    """Race every row; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--seconds", type=float, default=30.0, help="of racing, a row")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--page", type=Path, help="put the table into this page")
    given = parser.parse_args()
    wanted = [("infer", *row) for row in INFERENCE] + [("train", *row) for row in TRAINING]
    rows: list[Row] = []
    machine = ""
    for mode, model, batch, resolution in wanted:
        if given.only not in f"{model} {mode} {batch}x{resolution}":
            continue
        try:
            found = race(model, mode, batch, resolution, given.seconds, given.threads)
        except GolowError as error:
            print(f"{model} {mode} {batch}x{resolution}: {error.message}", flush=True)
            continue
        machine = machine or machine_text(found)
        rows.append(row(found))
        print(line(rows[-1]), flush=True)
    text = "\n".join([machine, "", *table(rows), "", *summary(rows)]) + "\n"
    print(text)
    if given.page:
        given.page.write_text(put_into(given.page.read_text(), "cpu", text))
    return 0


def race(
    model: str, mode: Mode, batch: int, resolution: int, seconds: float, threads: int
) -> Comparison:
    """The comparison of one row."""
    levels = [*PEERS[mode].split(), OURS]
    result = golow.compare(
        model,
        mode=mode,
        batch=batch,
        resolution=resolution,
        levels=levels,
        threads=threads,
        time_limit=seconds,
        interval=0.005,
    )
    return result.comparison


def row(found: Comparison) -> Row:
    """The figures of one race."""
    runs = {run.level: run for run in found.runs}
    ours = runs[OURS]
    timed = {n: r for n, r in runs.items() if r.time is not None and n != OURS}
    ratios = {name: ratio(run, ours) for name, run in timed.items()}
    best = min(ratios, key=lambda name: ratios[name][0])
    workload = found.workload
    return Row(
        workload.model,
        workload.mode,
        workload.batch,
        workload.inputs[0].shape[-1],
        ours.time.value if ours.time else float("nan"),
        best,
        ratios[best],
        ratios["eager"],
        ratios.get("compile"),
        ours.quantity("allocated_peak") or 0.0,
        runs["eager"].quantity("allocated_peak") or 0.0,
        ours.quantity("resident") or 0.0,
        min(run.quantity("resident") or float("inf") for run in timed.values()),
        ours.conditions.contended_share,
        tuple(name for name, run in runs.items() if run.check.verdict != "match"),
    )


def ratio(other: Run, ours: Run) -> tuple[float, float, float]:
    """other / ours: median over the rounds in which both were clean, with the 95% interval of
    the median (order statistics, binomial)."""
    by_round = {block.round: block for block in ours.blocks}
    pairs = [
        (statistics.median(block.host_ns), statistics.median(by_round[block.round].host_ns), clean)
        for block in other.blocks
        if block.round in by_round
        for clean in [not block.contended and not by_round[block.round].contended]
    ]
    clean = [(a, b) for a, b, is_clean in pairs if is_clean] or [(a, b) for a, b, _ in pairs]
    found = np.sort([a / b for a, b in clean])
    low = int(stats.binom.ppf(0.025, len(found), 0.5))
    high = min(len(found) - low, len(found) - 1)
    return float(np.median(found)), float(found[max(low - 1, 0)]), float(found[high])


# ---------------------------------------------------------------- text


def machine_text(found: Comparison) -> str:
    """The machine, the software and the command."""
    machine = found.runs[0].environment
    versions = ", ".join(f"{name} {text}" for name, text in sorted(machine.versions.items()))
    command = " ".join(["python", *sys.argv])
    return (
        f"{machine.cpu_model}, {found.workload.threads} threads, float32; {versions}.\n"
        f"Measured by `{command}`, {found.created[:10]}."
    )


def table(rows: list[Row]) -> list[str]:
    """The rows as Markdown."""
    lines = [
        "| model | mode | batch x side | onednn | best other | best other / onednn "
        "| eager / onednn | arena / eager's peak | resident / smallest other |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    return lines + [line(item) for item in rows]


def line(item: Row) -> str:
    """One row as Markdown."""
    arena = item.arena / item.eager_peak if item.eager_peak else float("nan")
    return (
        f"| {item.model} | {item.mode} | {item.batch}x{item.resolution} "
        f"| {item.ours * 1e3:.3g} ms | {item.best} | {interval(item.ratio)} "
        f"| {interval(item.over_eager)} | {arena:.2f} | {item.resident / item.least_resident:.2f} |"
    )


def interval(values: tuple[float, float, float]) -> str:
    """``1.10 (1.08-1.12)``."""
    return f"{values[0]:.3f} ({values[1]:.3f}-{values[2]:.3f})"


def summary(rows: list[Row]) -> list[str]:
    """Geometric means, and the rows that miss a bar."""
    lines = []
    for mode in ("infer", "train"):
        ratios = [item.ratio[0] for item in rows if item.mode == mode]
        if ratios:
            mean = float(np.exp(np.mean(np.log(ratios))))
            lines.append(
                f"* Geometric mean of the speed-up over the best other level, {mode}: {mean:.3f}."
            )
    for item in rows:
        name = f"{item.model} {item.mode} {item.batch}x{item.resolution}"
        if item.ratio[1] < 1:
            lines.append(f"* Not clearly faster than {item.best}: {name}, {interval(item.ratio)}.")
        if item.failed:
            lines.append(f"* Without a match: {name}: {', '.join(item.failed)}.")
        if item.mode == "train" and item.over_compile is not None:
            lines.append(f"* Speed-up over compile: {name}, {interval(item.over_compile)}.")
    return lines


if __name__ == "__main__":
    sys.exit(main())
