"""What does it cost to call a plan from PyTorch, and is it still the fastest?

    python benchmarks/handed_over.py --threads 2 --models mlp,lenet5,ncf,resnet50
    python benchmarks/handed_over.py --device cuda --precision bf16 --together 8
    python benchmarks/handed_over.py --show --page docs/results/handed_over.md

One race a network: the plan in golow's own worker, the same plan called as `golow.compile` hands it
over, and the rivals, each fed tensors in a process of its own. Every level is proved equal first. A
finished race is a folder in --out, and is not run again. With --together N, N networks are prepared
at the same time, each in a process of its own; when the last one is ready they are raced in turn,
so nothing compiles beside a race. The table has the time of the worker's plan and of the called
one, what a call adds in microseconds, their ratio, and the best rival's time over the called one;
each with its 95% interval.
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
from golow.records.workload import Device, Mode
from golow.worker.time_limits import Limits
from golow.worker.turn import Turn
from networks import TEXTS, listed, over, side
from page_part import put_into
from together import AfterAll, add_options, run_in_groups, turn

PLAN = {"cuda": "cudnn", "cpu": "onednn"}
RIVALS = {
    "cuda": ("compile:cudagraphs", "compile:freezing-cudagraphs", "compile:max-autotune"),
    "cpu": ("compile:freezing", "compile:max-autotune", "onnxruntime", "openvino"),
}
SHORT_NS = 200_000
"""Below this time of an iteration the bar is in microseconds, from it on a ratio."""
BARS = {"cuda": (6.0, 1.03), "cpu": (4.0, 1.03)}
BUILD_SECONDS = 600.0


class Row(NamedTuple):
    """What one race brought. added: of a call, in microseconds; cost: the called plan's time over
    the worker's; gain: the best rival's over the called plan's."""

    name: str
    worker_ns: float
    called_ns: float
    cost: Ratio | None
    rival: str
    gain: Ratio | None

    @property
    def added(self) -> float:
        """Microseconds that a call adds."""
        return (self.called_ns - self.worker_ns) / 1e3

    def meets(self, device: Device) -> bool:
        """Whether the cost is within the bar."""
        microseconds, ratio = BARS[device]
        if self.worker_ns < SHORT_NS:
            return self.added <= microseconds
        return self.called_ns <= ratio * self.worker_ns


def main() -> int:
    """Race what has no record, or show what has; returns the exit status."""
    options = arguments()
    if not options.show:
        return run_together(options) if options.together else run(options)
    files = sorted(options.out.glob(f"{options.device}-*/*/comparison.json"))
    if not files:
        print(f"{options.out} has no records of {options.device}", file=sys.stderr)
        return 2
    text = "\n".join([*page([load(file.parent) for file in files]), ""])
    print(text)
    if options.page:
        options.page.write_text(
            put_into(options.page.read_text(), f"calls, {options.device}", text)
        )
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--precision", default="default")
    parser.add_argument("--mode", default="infer", choices=get_args(Mode))
    parser.add_argument("--tune", action="store_true", help="engines of cudnn chosen by timing")
    parser.add_argument("--models", type=listed, default=tuple(ZOO))
    parser.add_argument("--rivals", type=listed, help="instead of all; none if empty")
    parser.add_argument("--point-seconds", type=float, default=20.0, help="of racing a network")
    parser.add_argument("--out", type=Path, default=Path("runs/handed_over"))
    parser.add_argument("--together", type=int, help="networks prepared at the same time")
    add_options(parser)
    parser.add_argument("--show", action="store_true", help="the table of the records, no race")
    parser.add_argument("--page", type=Path, help="with --show: put it into this page")
    given = parser.parse_args()
    if unknown := [name for name in given.models if name not in ZOO]:
        parser.error(f"--models: there is no {', '.join(unknown)}; known: {', '.join(ZOO)}")
    return given


def run_together(options: argparse.Namespace) -> int:
    """Race the networks without a record in groups of ``--together``; 1 if one of them failed."""
    missing = [name for name in options.models if not is_raced(record_folder(name, options))]
    return int(not run_in_groups(missing, options.together, "--models"))


def run(options: argparse.Namespace) -> int:
    """Race every network without a record; 1 if one of them failed."""
    place = turn(options)
    failed = False
    for name in options.models:
        folder = record_folder(name, options)
        if is_raced(folder):
            continue
        try:
            found = race(name, options, place)
        except golow.GolowError as error:
            failed = True
            print(f"{name}: {error.message}", file=sys.stderr, flush=True)
            continue
        finally:
            if isinstance(place, AfterAll):
                place.ready()
        found.save(folder)
        print("\n".join(lines([found.comparison])), flush=True)
    return int(failed)


def record_folder(name: str, options: argparse.Namespace) -> Path:
    """The folder of a network's record."""
    setting = f"{options.precision}-{options.batch}-{options.mode}{'-tuned' * options.tune}"
    return Path(options.out) / f"{options.device}-{name}-{setting}"


def is_raced(folder: Path) -> bool:
    """Whether the folder has a record."""
    return any(folder.glob("*/comparison.json"))


def race(name: str, options: argparse.Namespace, place: Turn) -> golow.Result:
    """The plan, the called plan and the rivals in one race."""
    rivals = RIVALS[options.device] if options.rivals is None else options.rivals
    length = TEXTS[options.device][options.mode][0][1] if ZOO[name].sequence else None
    return golow.compare(
        name,
        batch=options.batch,
        sequence=length,
        resolution=side(ZOO[name], options.device),
        levels=[*ours(options.device, options.tune), *rivals],
        mode=options.mode,
        device=options.device,
        precision=options.precision,
        threads=options.threads,
        time_limit=options.point_seconds,
        limits=Limits(load=BUILD_SECONDS),
        turn=place,
        brief=True,
    )


def ours(device: Device, tuned: bool) -> tuple[str, str]:
    """The level of the plan in golow's worker, and of the called one."""
    plan = PLAN[device]
    return (f"{plan}:autotune", f"{plan}:called-autotune") if tuned else (plan, f"{plan}:called")


def rows(comparisons: Sequence[Comparison]) -> Iterator[Row]:
    """The figures of each race whose plan and called plan were timed."""
    for found in comparisons:
        timed = {run.level: run for run in found.runs if run.time is not None}
        pairs = (ours(found.workload.device, tuned) for tuned in (False, True))
        pair = next((pair for pair in pairs if timed.keys() >= set(pair)), None)
        if pair is None:
            continue
        worker, called = timed[pair[0]], timed[pair[1]]
        others = [run for name, run in timed.items() if name not in (*pair, "eager")]
        best = min(others, key=nanoseconds, default=None)
        seed = found.race.seed
        yield Row(
            f"{found.workload.model} {found.workload.mode} {found.workload.precision} "
            f"{found.workload.batch}",
            nanoseconds(worker),
            nanoseconds(called),
            over(called, worker, seed),
            best.level if best else "",
            over(best, called, seed) if best else None,
        )


def nanoseconds(run: Run) -> float:
    """The time of an iteration."""
    return run.time.value * 1e9 if run.time is not None else math.inf


def lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """A row of the table a race."""
    for row in rows(comparisons):
        device = comparisons[0].workload.device
        mark = "" if row.meets(device) else " (over the bar)"
        yield (
            f"| {row.name} | {row.worker_ns / 1e3:.1f} | {row.called_ns / 1e3:.1f} "
            f"| {row.added:+.1f}{mark} | {spelled(row.cost)} | {row.rival} | {spelled(row.gain)} |"
        )


def spelled(ratio: Ratio | None) -> str:
    """A ratio with its interval."""
    return "-" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"


def page(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """The table of all races, with the machine and the means."""
    first = comparisons[0]
    machine = first.runs[0].environment
    where = ", ".join(machine.gpu or (f"{machine.cpu_model}, {first.workload.threads} threads",))
    yield f"{where}; batches as given; microseconds an iteration."
    yield ""
    yield (
        "| network | worker's | called | a call adds | called / worker | best rival "
        "| best rival / called |"
    )
    yield "|---|---|---|---|---|---|---|"
    yield from lines(comparisons)
    gains = [row.gain.value for row in rows(comparisons) if row.gain is not None]
    if gains:
        behind = sum(gain < 1 for gain in gains)
        yield ""
        yield (
            f"Geometric mean of best rival / called: {geometric_mean(gains):.2f} over "
            f"{len(gains)} networks; the called plan is slower on {behind}."
        )


if __name__ == "__main__":
    sys.exit(main())
