"""Is the lowest level the fastest on every network of the zoo? One race a point, like for like.

    python benchmarks/networks.py --device cuda                     # hours; may be stopped
    python benchmarks/networks.py --threads 2 --models resnet18,vit_b_16 --modes infer
    python benchmarks/networks.py --show --modes infer --page docs/results/networks.md

A point is a network, a mode, a precision and a batch. On a GPU: inference of 1, 8 and 64 images, of
texts 1x128 and 8x512, and training steps of 8 and 32 samples, in tf32 and bf16. On a CPU: 1 and 8
samples in float32, small images and texts of 128 tokens. In each race every level is proved equal
first, then all are timed in turn. A finished point is a folder in --out and one line of JSON on
standard output; a point that has its folder is not run again, one that failed is tried again. With
--budget no point begins after so many seconds; with --turns several runs share one GPU: they
prepare side by side, and each race has the GPU to itself while it is timed. --show prints the
tables of all records in --out of these --modes; --page also puts them between the marks of a page,
``<!-- networks: begin -->`` and ``<!-- networks: end -->``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

import golow
from golow.measure.stats import block_figure, ratio
from golow.models import ZOO
from golow.models.entry import Entry
from golow.programs.comparison.figures import used_blocks
from golow.programs.comparison.store import load
from golow.records.comparison import Comparison, Ratio, Run
from golow.records.workload import Device, Mode, Precision
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from networks_tables import Row, input_size, tables
from page_part import put_into

IMAGES = {"cuda": {"infer": (1, 8, 64), "train": (8, 32)}, "cpu": {"infer": (1, 8), "train": (8,)}}
TEXTS = {
    "cuda": {"infer": ((1, 128), (8, 512)), "train": ((8, 128), (32, 128))},
    "cpu": {"infer": ((1, 128), (8, 128)), "train": ((8, 128),)},
}
SIDE = 64  # of a small image, or the smallest that the network takes
PRECISIONS = {"cuda": ("tf32", "bf16"), "cpu": ("default",)}
EVERY = ("eager:channels_last", "torchscript", "compile", "libtorch")
RIVALS = {
    ("cuda", "infer"): (
        *EVERY, "compile:freezing", "compile:cudagraphs", "compile:freezing-cudagraphs",
        "compile:max-autotune", "cudagraph", "cudagraph:channels_last",
    ),
    ("cuda", "train"): (
        *EVERY, "compile:cudagraphs", "compile:max-autotune", "cudagraph",
        "cudagraph:channels_last",
    ),
    ("cpu", "infer"): (*EVERY, "compile:freezing", "compile:max-autotune", "onnxruntime",
                       "openvino"),
    ("cpu", "train"): (*EVERY, "compile:max-autotune"),
}  # fmt: skip
OURS = {"cuda": "cudnn:autotune", "cpu": "onednn"}
BUILD_SECONDS = 600.0  # a level that is not ready by then fails at this point


class Point(NamedTuple):
    """What one race is about. length: of a text, 0 for anything else."""

    model: str
    mode: Mode
    precision: Precision
    batch: int
    length: int = 0

    @property
    def name(self) -> str:
        """The name of its folder."""
        size = f"{self.batch}x{self.length}" if self.length else str(self.batch)
        return f"{self.model}-{self.mode}-{self.precision}-{size}"


def main() -> int:
    """Run the points that have no record, or show those that have; returns the exit status."""
    options = arguments()
    if not options.show:
        return run(options)
    files = sorted(options.out.glob("*/*/comparison.json"))
    rows = [
        row(found) for file in files if (found := load(file.parent)).workload.mode in options.modes
    ]
    if not rows:
        print(f"{options.out} has no records of {', '.join(options.modes)}", file=sys.stderr)
        return 2
    text = "\n".join(tables(rows, OURS[rows[0].device]))
    print(text)
    if options.page:
        options.page.write_text(put_into(options.page.read_text(), "networks", text))
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/networks"))
    parser.add_argument("--point-seconds", type=float, default=20.0, help="of racing at a point")
    parser.add_argument("--models", type=listed, default=tuple(ZOO))
    parser.add_argument("--modes", type=listed, default=get_args(Mode))
    parser.add_argument("--precisions", type=listed, help="default: those of the device")
    parser.add_argument("--batches", type=listed, help="only these")
    parser.add_argument("--levels", type=listed, help="instead of all rivals")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds; then no new point")
    parser.add_argument("--turns", type=Path, help="folder of all runs that share the GPU")
    parser.add_argument("--show", action="store_true", help="the tables of the records, no race")
    parser.add_argument("--page", type=Path, help="with --show: put the tables into this page")
    given = parser.parse_args()
    known_names = {"models": ZOO, "modes": get_args(Mode), "precisions": get_args(Precision)}
    for name, known in known_names.items():
        if unknown := [item for item in getattr(given, name) or () if item not in known]:
            parser.error(f"--{name}: there is no {', '.join(unknown)}; known: {', '.join(known)}")
    return given


def listed(text: str) -> tuple[str, ...]:
    """The words between commas; none in an empty text."""
    return tuple(word for word in text.split(",") if word)


# ---------------------------------------------------------------- races


def points(options: argparse.Namespace) -> Iterator[Point]:
    """Every point that was asked for: all of a network before the next one."""
    device: Device = options.device
    for model in options.models:
        for mode in options.modes:
            for precision in options.precisions or PRECISIONS[device]:
                for batch, length in sizes(model, device, mode):
                    if options.batches is None or str(batch) in options.batches:
                        yield Point(model, mode, precision, batch, length)


def sizes(model: str, device: Device, mode: Mode) -> Iterator[tuple[int, int]]:
    """Batch and length of text, as far as the model takes such a length."""
    entry = ZOO[model]
    if not entry.sequence:
        yield from ((batch, 0) for batch in IMAGES[device][mode])
        return
    longest = entry.longest or math.inf
    yield from ((batch, n) for batch, n in TEXTS[device][mode] if n <= longest)


def run(options: argparse.Namespace) -> int:
    """Race at every point that has no record yet; 1 if one of them failed."""
    begun, failed = time.monotonic(), False
    for point in points(options):
        folder = options.out / point.name
        if any(folder.glob("*/comparison.json")):
            continue
        if time.monotonic() - begun > options.budget:
            break
        started = time.monotonic()
        try:
            race(point, options).save(folder)
        except golow.GolowError as error:
            failed = True
            say(point, started, error=error.message)
            continue
        [file] = folder.glob("*/comparison.json")
        found = row(load(file.parent))
        gain = None if found.gain is None else round(found.gain.value, 4)
        say(point, started, best=found.best, gain=gain, missing=found.missing)
    return int(failed)


def race(point: Point, options: argparse.Namespace) -> golow.Result:
    """One comparison of all rivals with ours."""
    device = options.device
    rivals = options.levels or RIVALS[device, point.mode]
    return golow.compare(
        point.model,
        mode=point.mode,
        batch=point.batch,
        sequence=point.length or None,
        resolution=side(ZOO[point.model], device),
        levels=[*rivals, OURS[device]],
        device=device,
        precision=point.precision,
        threads=options.threads,
        time_limit=options.point_seconds,
        limits=Limits(load=BUILD_SECONDS),
        turn=Turn(options.turns) if options.turns else None,
        brief=True,
    )


def side(entry: Entry, device: Device) -> int | None:
    """Of the images that a network gets on this device; None: its own."""
    if not entry.takes_images or device == "cuda":
        return None
    step = entry.resolution_step
    least = -(-max(entry.minimum_resolution, 1) // step) * step
    return min(max(SIDE, least), entry.resolution)


def say(point: Point, started: float, **facts: object) -> None:
    """One line of JSON."""
    seconds = round(time.monotonic() - started, 1)
    print(json.dumps({"point": point.name, "seconds": seconds, **facts}), flush=True)


# ---------------------------------------------------------------- what they brought


def row(found: Comparison) -> Row:
    """The figures of one race."""
    workload = found.workload
    size = input_size(workload)
    made = Row(workload.model, size, workload.device, workload.mode, workload.precision)
    runs = {run.level: run for run in found.runs}
    ours, eager = runs[OURS[workload.device]], runs["eager"]
    if ours.time is None:
        return made._replace(missing=f"{ours.check.verdict}: {ours.check.words}")
    timed = [run for run in found.runs if run.time is not None and run is not ours]
    if not timed:
        return made._replace(missing="no other level was timed")
    best = min(timed, key=lambda run: run.time.value if run.time else math.inf)
    held = [memory(run, workload.device) for run in (ours, eager)]
    return made._replace(
        ours=ours.time.value,
        best=best.level,
        other=best.time.value if best.time else None,
        gain=over(best, ours, found.race.seed),
        over_eager=over(eager, ours, found.race.seed),
        memory=held[0] / held[1] if held[0] and held[1] else None,
    )


def over(other: Run, ours: Run, seed: int) -> Ratio | None:
    """The other's time over ours, of the rounds in which both were timed."""
    figures = [
        {block.round: block_figure(block.device_ns or block.host_ns) for block in used_blocks(run)}
        for run in (other, ours)
    ]
    rounds = sorted(figures[0].keys() & figures[1].keys())
    if not rounds:
        return None
    return ratio(*([each[n] for n in rounds] for each in figures), seed)


def memory(run: Run, device: Device) -> float | None:
    """Bytes: on a GPU those of the process on the device, on a CPU what an iteration holds."""
    names = ("device_used", "device_added") if device == "cuda" else ("allocated_peak",)
    return next((size for name in names if (size := run.quantity(name)) is not None), None)


if __name__ == "__main__":
    sys.exit(main())
