"""Does a level train the same network? Loss curves on real digits, step by step.

    python benchmarks/loss_curves.py [--models lenet5,resnet18,resnet50] [--levels onednn,libtorch]

Every level trains from the same weights on the same batches in the same order. Three runs of eager
that add up in another order (as it is; channels last; one thread) show the spread that rounding
alone gives: a level follows eager if its curve is no farther from eager's, in root mean square over
the steps, than two of the three are from each other, plus one rounding of the loss itself. Models
with dropout are left out: every run draws its own. Prints a table; ends with status 1 unless all
follow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from golow import levels as ladder
from golow.bundle import Bundle, write_bundle
from golow.comparison import capture
from golow.data import images
from golow.data.places import default_cache
from golow.lower.passes import CLEAN_UP, apply
from golow.record import Optimizer
from golow.standard import spawn
from golow.worker.client import Limits
from golow.workload import Batch, prepare

SPREAD = ("eager:channels_last", "eager, one thread")


class Setting(NamedTuple):
    """Batch, resolution and learning rate at which two cores are done within a minute."""

    batch: int
    resolution: int
    learning_rate: float


SETTINGS = {
    "lenet5": Setting(32, 28, 0.01),
    "resnet18": Setting(16, 32, 0.001),
    "resnet50": Setting(16, 32, 0.001),
}


def main() -> int:
    """Train every model at every level; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(SETTINGS))
    parser.add_argument("--levels", default="onednn")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batches", type=int, default=40)
    given = parser.parse_args()
    levels = given.levels.split(",")
    columns = ("first loss", "last loss", "rms from eager", "largest", "")
    table = Table("model", "level", *columns, box=None, padding=(0, 2, 0, 0))
    good = True
    for model in given.models.split(","):
        curves = train(model, levels, given.steps, given.batches)
        allowed = spread(curves)
        for name, curve in curves.items():
            away = distance(curve, curves["eager"])
            follows = away <= allowed
            good &= follows
            word = "" if name in ("eager", *SPREAD) else ("follows" if follows else "does not")
            largest = float(np.abs(curve - curves["eager"]).max())
            row = (f"{curve[0]:.5f}", f"{curve[-1]:.5f}", f"{away:.2e}", f"{largest:.1e}", word)
            table.add_row(model, name, *row)
        print(f"{model}: two runs of eager are up to {allowed:.2e} apart (rms)")
    Console(width=120).print(table)
    return 0 if good else 1


def spread(curves: dict[str, np.ndarray]) -> float:
    """How far apart rounding alone takes two curves."""
    names = ("eager", *SPREAD)
    farthest = max(distance(curves[a], curves[b]) for a, b in combinations(names, 2))
    return farthest + float(np.spacing(np.float32(curves["eager"].max())))


def distance(curve: np.ndarray, other: np.ndarray) -> float:
    """Root mean square of the difference over the steps."""
    return float(np.sqrt(np.mean((curve - other) ** 2)))


def train(model: str, levels: list[str], steps: int, batches: int) -> dict[str, np.ndarray]:
    """Losses of every step at every level, by the level's name."""
    with tempfile.TemporaryDirectory(prefix="golow-") as folder:
        bundles = {n: bundle(model, batches, n, Path(folder) / str(n)) for n in (1, 2)}
        runs = [("eager", bundles[2]), ("eager:channels_last", bundles[2])]
        runs += [("eager, one thread", bundles[1]), *((level, bundles[2]) for level in levels)]
        return {name: np.array(list(losses(name, given, steps))) for name, given in runs}


def bundle(model: str, batches: int, threads: int, folder: Path) -> Bundle:
    """The workload on so many different batches of digits."""
    setting = SETTINGS[model]
    prepared = prepare(
        model,
        mode="train",
        batch=setting.batch,
        resolution=setting.resolution,
        threads=threads,
        optimizer=Optimizer(learning_rate=setting.learning_rate, momentum=0.9),
    )
    shape = prepared.workload.inputs[0].shape[1:]
    many = tuple(
        Batch((torch.from_numpy(x),), (torch.from_numpy(y),))
        for x, y in images.batches(batches, setting.batch, shape, seed=0)
    )
    workload = msgspec.structs.replace(prepared.workload, batches=len(many))
    captured = capture(prepared)
    made, _ = write_bundle(prepared._replace(workload=workload, batches=many), folder)
    made.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return made


def losses(name: str, given: Bundle, steps: int) -> Iterator[float]:
    """The loss of one step after another."""
    choice = ladder.choose(name.partition(",")[0], "train")
    launch = choice.level.prepare(given, choice.variant, default_cache())
    with spawn(name, launch, given, Limits()) as worker:
        worker.load(given.folder)
        for _ in range(steps):
            worker.time(1, 0)
            assert worker.last is not None
            yield worker.last


if __name__ == "__main__":
    sys.exit(main())
