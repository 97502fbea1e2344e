"""How far are the operations of the direct level's plans from float64, each by itself?

    python benchmarks/step_checks.py --threads 2
    python benchmarks/step_checks.py --device cuda --precisions ieee,tf32,bf16,fp16 --jobs 8

A row a network of the zoo, mode and precision: results judged, how many are off by more than their
own rounding, the one with the largest share of its limit, and the seconds that the check took
beside those of loading the level. Nothing is timed. --jobs: how many networks at once.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import NamedTuple, get_args

import torch

from golow.models import ZOO
from golow.observer import Silent
from golow.programs.explain.verify_steps import verify
from golow.records.comparison import StepsCheck
from golow.records.errors import GolowError
from golow.records.workload import Device, Mode, Precision
from golow.workload.request import Request
from networks import listed


class Case(NamedTuple):
    """A network in a mode and a precision."""

    model: str
    mode: Mode
    precision: Precision


def main() -> int:
    """Check every network; 1 if one of them has a wrong operation."""
    options = arguments()
    cases = [Case(*case) for case in product(options.models, options.modes, options.precisions)]
    print("| network | results | wrong | largest share | at | loading | check |")
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        return int(any(list(pool.map(partial(shown, options=options), cases))))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--models", type=listed, default=tuple(ZOO))
    parser.add_argument("--modes", type=listed, default=get_args(Mode))
    parser.add_argument("--precisions", type=listed, default=("default",))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--resolution", type=int, default=64)
    parser.add_argument("--sequence", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=1)
    return parser.parse_args()


def shown(case: Case, options: argparse.Namespace) -> bool:
    """Print the row of a network; returns whether it has a wrong operation."""
    torch.set_num_threads(options.threads)
    name = f"{case.model} {case.mode} {case.precision}"
    try:
        found, loading, checking = checked(case, options)
    except GolowError as error:
        print(f"| {name} | {error} |", flush=True)
        return True
    worst = found.worst
    where = f"{worst.operation} ({worst.value})" if worst else ""
    share = worst.share if worst else 0.0
    print(
        f"| {name} | {found.count} | {found.failed} | {share:.3g} | {where} "
        f"| {loading:.1f} s | {checking:.1f} s |",
        flush=True,
    )
    for item in found.wrong:
        print(f"    {item.words}", file=sys.stderr, flush=True)
    return bool(found.failed)


def checked(case: Case, options: argparse.Namespace) -> tuple[StepsCheck, float, float]:
    """The check of a network's plan, the seconds of loading it and of the check."""
    entry = ZOO[case.model]
    sizes = {"sequence": options.sequence} if entry.sequence else {}
    if entry.takes_images:
        sizes = {"resolution": options.resolution}
    request = Request(
        case.model,
        mode=case.mode,
        precision=case.precision,
        device=options.device,
        batch=options.batch,
        threads=options.threads,
        **sizes,
    )
    stages = Stages()
    found = verify(request, "vendor", stages).steps
    *_, loading, checking = stages.begun
    return found, checking - loading, time.perf_counter() - checking


class Stages(Silent):
    """Notes when each stage began; the last two are loading and the check."""

    def __init__(self) -> None:
        self.begun: list[float] = []

    def stage(self, text: str) -> None:
        self.begun.append(time.perf_counter())


if __name__ == "__main__":
    sys.exit(main())
