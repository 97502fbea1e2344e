"""Every level of the ladder on one GPU, ResNet-50 over batch sizes, resolutions and precisions.

    python benchmarks/gpu_ladder.py                         # all points: hours of compiling
    python benchmarks/gpu_ladder.py --points 32x32,256x224 --precisions bf16 --modes infer
    python benchmarks/gpu_ladder.py --show runs/gpu_ladder --page docs/results/h200.md

Each point is one comparison: every level is proved equal first, then all are timed in turn in one
race, so that their ratios are of the same minutes of the same GPU. The records stay in --out, and a
point that is there is not run again. Several of these commands may share --out, each with cores of
its own (taskset): each takes the next free point. Those on one GPU (CUDA_VISIBLE_DEVICES) prepare
beside one another and take turns in being timed. The last lines compare `cudnn` (timed engines)
with the best of the others, with eager, and its memory with eager's. --show prints the tables from
the records alone; --page puts them between ``<!-- points: begin -->`` and ``<!-- points: end -->``.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import get_args

from golow import compare
from golow.programs.comparison.store import load
from golow.records.comparison import Comparison, Run
from golow.records.errors import GolowError
from golow.records.workload import Precision
from golow.worker.turn import Turn
from page_part import put_into

POINTS = tuple((batch, size) for size in (32, 96, 224) for batch in (1, 8, 32, 256))
LEVELS = {
    "infer": (
        "eager:channels_last", "torchscript", "compile", "compile:freezing", "compile:cudagraphs",
        "compile:freezing-cudagraphs", "cudagraph", "cudagraph:channels_last", "libtorch",
    ),
    "train": (
        "eager:channels_last", "torchscript", "compile", "compile:cudagraphs", "cudagraph",
        "cudagraph:channels_last", "libtorch",
    ),
}  # fmt: skip
OURS = "cudnn:autotune"


def main() -> int:
    options = arguments()
    if options.show is None:
        run(options)
    comparisons = sorted(stored(options.show or options.out), key=order)
    if not comparisons:
        print("there are no records")
        return 2
    text = "\n".join([*table(comparisons), "", *means(comparisons)])
    print(text)
    if options.page:
        options.page.write_text(put_into(options.page.read_text(), "points", text))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--points", help="BATCHxRESOLUTION, with commas between")
    parser.add_argument("--modes", default="infer,train")
    parser.add_argument("--precisions", default="default,tf32,bf16")
    parser.add_argument("--levels", help="instead of all that PyTorch offers")
    parser.add_argument("--seconds", type=float, default=10.0, help="of racing at each point")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds; then no new point")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu_ladder"))
    parser.add_argument("--show", type=Path, help="the records to show, no race")
    parser.add_argument("--page", type=Path, help="put the tables into this page")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    """Compare at every point that has no record yet."""
    begun = time.monotonic()
    turn = Turn(options.out / f"turns-{os.environ.get('CUDA_VISIBLE_DEVICES', 'all')}")
    points = parsed(options.points) if options.points else POINTS
    for precision in options.precisions.split(","):
        assert precision in get_args(Precision)
        for mode in options.modes.split(","):
            for batch, size in points:
                folder = options.out / f"{options.model}-{mode}-{precision}-{batch}x{size}"
                if time.monotonic() - begun > options.budget or not claimed(folder):
                    continue
                names = options.levels.split(",") if options.levels else LEVELS[mode]
                print(f"{folder.name}: {len(names) + 1} levels", flush=True)
                try:
                    found = compare(
                        options.model, batch=batch, resolution=size, mode=mode, device="cuda",
                        precision=precision, levels=[*names, OURS], time_limit=options.seconds,
                        brief=True, turn=turn,
                    )  # fmt: skip
                except GolowError as error:
                    print(f"  {error.message}", file=sys.stderr)
                    continue
                found.save(folder)


def claimed(folder: Path) -> bool:
    """Make the point's folder; false if it is there, with a record or another's claim."""
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def parsed(text: str) -> list[tuple[int, int]]:
    pairs = (point.split("x") for point in text.split(","))
    return [(int(batch), int(size)) for batch, size in pairs]


def stored(folder: Path) -> list[Comparison]:
    return [load(path.parent) for path in sorted(folder.glob("*/*/comparison.json"))]


def order(comparison: Comparison) -> tuple[str, str, int, int]:
    workload = comparison.workload
    return workload.mode, workload.precision, workload.inputs[0].shape[2], workload.batch


# ---------------------------------------------------------------- the tables


def table(comparisons: list[Comparison]) -> list[str]:
    """A row a point: eager, the best other level, ours, the ratios and the memory."""
    rows = [
        "| point | eager ms | best other | ms | cudnn ms | best / cudnn | eager / cudnn | images/s "
        "| cudnn MiB | eager MiB | cudnn / eager, memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for comparison in comparisons:
        workload = comparison.workload
        point = f"{workload.batch}x{workload.inputs[0].shape[2]}"
        name = f"{workload.mode} {workload.precision} {point}"
        runs = {run.level: run for run in comparison.runs}
        timed, ours = times(comparison), runs.get(OURS)
        if ours is None or ours.time is None or not timed:
            reason = ours.check.reason if ours else "did not take part"
            rows.append(f"| {name} | cudnn: {reason} | | | | | | | | | |")
            continue
        best = min(timed, key=timed.__getitem__)
        rows.append(
            f"| {name} | {timed['eager'] * 1e3:.3g} | {best} | {timed[best] * 1e3:.3g} "
            f"| {ours.time.value * 1e3:.3g} | {timed[best] / ours.time.value:.2f} "
            f"| {timed['eager'] / ours.time.value:.2f} | {workload.batch / ours.time.value:,.0f} "
            f"| {memory(ours, runs['eager'])} |"
        )
    return rows


def means(comparisons: list[Comparison]) -> list[str]:
    """A row a mode and precision: the geometric mean of the best other level's time over ours."""
    gains: dict[tuple[str, str], list[float]] = {}
    for comparison in comparisons:
        ours = next((run for run in comparison.runs if run.level == OURS), None)
        if (timed := times(comparison)) and ours is not None and ours.time is not None:
            kind = comparison.workload.mode, comparison.workload.precision
            gains.setdefault(kind, []).append(min(timed.values()) / ours.time.value)
    rows = ["| | points | geometric mean of best / cudnn | lowest |", "|---|---|---|---|"]
    for (mode, precision), found in gains.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        rows.append(f"| {mode} {precision} | {len(found)} | {mean:.2f} | {min(found):.2f} |")
    return rows


def times(comparison: Comparison) -> dict[str, float]:
    """Seconds of every level but ours."""
    return {
        run.level: run.time.value
        for run in comparison.runs
        if run.time is not None and not run.level.startswith("cudnn")
    }


def memory(ours: Run, eager: Run) -> str:
    """Cells of the device memory of both processes, as NVML counts it, and of their ratio."""
    found = [run.quantity("device_used") or run.quantity("device_added") for run in (ours, eager)]
    if found[0] is None or found[1] is None:
        return "- | - | -"
    return f"{found[0] / 2**20:.0f} | {found[1] / 2**20:.0f} | {found[0] / found[1]:.2f}"


if __name__ == "__main__":
    sys.exit(main())
