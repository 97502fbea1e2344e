"""Is the direct level the fastest on several GPUs, too, and are two as fast as twice one?

    python benchmarks/several_gpus.py --gpus 2 --batch 64 --precision bf16
    python benchmarks/several_gpus.py --show --page docs/use/several_gpus.md

Two races a network, in training with --batch samples a rank: every level of several GPUs on --gpus
of them, and the direct level on one. Every level is proved equal first. All are prepared at the
same time and raced in turn. Each race is a record in --out. The table has the time of a step, the
best of PyTorch's levels over the direct level with its 95% interval, and the efficiency: the direct
level's throughput on all GPUs over as many times that on one.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple, get_args

import golow
from golow.models import ZOO
from golow.programs.comparison.store import load
from golow.records.comparison import Comparison, Ratio, Run
from golow.records.workload import Precision
from golow.worker.time_limits import Limits
from networks import listed, over
from page_part import put_into
from together import RacesInTurn, add_options, run_group

NETWORKS = ("resnet50", "bert_base", "vit_b_16")
DIRECT = "cudnn"
LEVELS = ("ddp", "ddp:compile", "fsdp", DIRECT)
TOKENS = 128
BUILD_SECONDS = 400.0


class Row(NamedTuple):
    """A network on several GPUs. gain: the best of PyTorch over the direct level."""

    model: str
    batch: int
    direct_seconds: float
    best: str
    gain: Ratio | None
    efficiency: float | None


def main() -> int:
    """Race every network, or show the records; 1 if a race failed, 2 without records."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="of one rank")
    parser.add_argument("--precision", default="bf16", choices=get_args(Precision))
    parser.add_argument("--networks", type=listed, default=NETWORKS)
    parser.add_argument("--levels", type=listed, default=LEVELS)
    parser.add_argument("--seconds", type=float, default=10.0, help="of one race")
    parser.add_argument("--out", type=Path, default=Path("runs/several_gpus"))
    parser.add_argument("--ranks", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--show", action="store_true", help="the table of the records, no race")
    parser.add_argument("--page", type=Path, help="with --show: put it into this page")
    add_options(parser)
    options = parser.parse_args()
    if options.show:
        return show(options)
    if options.turns:
        return race(options.networks[0], options)
    each = [
        ("--networks", name, "--ranks", str(ranks))
        for name in options.networks
        for ranks in (options.gpus, 1)
    ]
    return int(not run_group(each))


def race(name: str, options: argparse.Namespace) -> int:
    """Race one network on so many GPUs and save the record; 1 if it failed."""
    observer = RacesInTurn(options.turns, options.expected)
    try:
        result = golow.compare(
            name,
            mode="train",
            device="cuda",
            ranks=options.ranks,
            batch=options.batch,
            sequence=TOKENS if ZOO[name].sequence else None,
            precision=options.precision,
            levels=options.levels if options.ranks > 1 else [DIRECT],
            threads=2,
            time_limit=options.seconds,
            limits=Limits(load=BUILD_SECONDS),
            observer=observer,
            brief=True,
        )
    except golow.GolowError as error:
        print(f"{name} on {options.ranks}: {error.message}", file=sys.stderr, flush=True)
        return 1
    finally:
        observer.ready()
    result.save(options.out)
    for run in result.comparison.runs:
        print(f"{name} on {options.ranks}: {run.level} {run.check.verdict} {seconds(run):.6f} s")
    sys.stdout.flush()
    return 0


def seconds(run: Run) -> float:
    """The time of a step; infinite if it was not timed."""
    return run.time.value if run.time is not None else math.inf


# ---------------------------------------------------------------- the page


def show(options: argparse.Namespace) -> int:
    """Print the table of all records, and put it into the page."""
    found = [load(file.parent) for file in sorted(options.out.glob("*/comparison.json"))]
    if not found:
        print(f"{options.out} has no records", file=sys.stderr)
        return 2
    text = "\n".join(page(found))
    print(text)
    if options.page:
        options.page.write_text(put_into(options.page.read_text(), "several gpus", text))
    return 0


def rows(found: Sequence[Comparison]) -> Iterator[Row]:
    """A row a network whose direct level was timed on several GPUs."""
    of_one = {one.workload.model: direct(one) for one in found if one.workload.ranks == 1}
    for one in found:
        ours = direct(one)
        if one.workload.ranks == 1 or ours is None:
            continue
        others = [run for run in one.runs if run.level != DIRECT and run.time is not None]
        best = min(others, key=seconds, default=None)
        alone = of_one.get(one.workload.model)
        yield Row(
            one.workload.model,
            one.workload.batch,
            seconds(ours),
            best.level if best else "",
            over(best, ours, one.race.seed) if best else None,
            seconds(alone) / seconds(ours) if alone else None,
        )


def direct(found: Comparison) -> Run | None:
    """The run of the direct level, if it was timed."""
    timed = (run for run in found.runs if run.level == DIRECT and run.time is not None)
    return next(timed, None)


def page(found: Sequence[Comparison]) -> Iterator[str]:
    """The table, with the machine and the mean."""
    first = next((one for one in found if one.workload.ranks > 1), found[0])
    machine = first.runs[0].environment
    yield (
        f"{first.workload.ranks} x {machine.gpu[0]}, torch {machine.versions.get('torch', '?')}, "
        f"precision {first.workload.precision}, {first.created[:10]}:"
    )
    yield ""
    yield "| network | batch per rank | `cudnn` | best of PyTorch | its time / ours | efficiency |"
    yield "|---|---|---|---|---|---|"
    table = list(rows(found))
    for row in table:
        efficiency = "-" if row.efficiency is None else f"{row.efficiency:.3f}"
        yield (
            f"| {row.model} | {row.batch} | {row.direct_seconds * 1e3:.2f} ms | `{row.best}` "
            f"| {spelled(row.gain)} | {efficiency} |"
        )
    gains = [row.gain.value for row in table if row.gain is not None]
    if gains:
        yield ""
        yield f"Geometric mean of the gain: {geometric_mean(gains):.2f}."


def spelled(ratio: Ratio | None) -> str:
    """A ratio with its interval."""
    return "-" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
