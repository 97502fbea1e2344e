"""The verdict of every level for every model of the zoo, in inference and in training.

    python benchmarks/every_model.py [--levels eager,torchscript] [--models lenet5,alexnet]
    python benchmarks/every_model.py --device cuda --levels cudnn --precisions ieee,tf32,bf16,fp16

Prints a table of verdicts with the worst tensor's share of its limit (below 1 passes), and ends
with status 1 unless all match. The race is cut to a round: this is about correctness.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product
from typing import get_args

from rich.console import Console
from rich.table import Table

import golow
from golow.levels.ladder import DEFAULT
from golow.models import ZOO
from golow.records.comparison import Run
from golow.records.errors import GolowError
from golow.records.workload import Device, Mode, Precision

# Sizes at which two cores are done within seconds: (batch, resolution).
SIZES = {"mlp": (8, 28), "lenet5": (8, 28), "mnist_cnn": (8, 28), "alexnet": (2, 224)}
SIZES |= {"vgg16": (2, 32), "vgg19": (2, 32)}
OTHERS = (8, 64)
TOKENS = 16  # of a sample of a text


def main() -> int:
    """Compare every model at every level; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", default=",".join(DEFAULT))
    parser.add_argument("--models", default=",".join(ZOO))
    parser.add_argument("--modes", default="infer,train")
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--precisions", default="default")
    given = parser.parse_args()
    levels = given.levels.split(",")
    table = Table("model", "mode", "precision", *levels, box=None, padding=(0, 2, 0, 0))
    good = True
    for model, mode, precision in product(
        given.models.split(","), given.modes.split(","), given.precisions.split(",")
    ):
        start = time.monotonic()
        verdicts = check(model, mode, levels, given.device, precision)
        good &= all(text.startswith(("match", "-")) for text in verdicts)
        table.add_row(model, mode, precision, *verdicts)
        seconds = time.monotonic() - start
        print(model, mode, precision, *verdicts, f"{seconds:.0f} s", sep="  ", flush=True)
    Console(width=140).print(table)
    return 0 if good else 1


def check(
    model: str, mode: Mode, levels: list[str], device: Device, precision: Precision
) -> list[str]:
    """One text a level: verdict and the worst tensor's share of its limit."""
    batch, resolution = SIZES.get(model, OTHERS)
    entry = ZOO.get(model)
    if entry is not None and not entry.takes_images:
        batch, resolution = 2, None
    sequence = TOKENS if entry is not None and entry.sequence else None
    fitting = [level for level in levels if not (mode == "train" and level.endswith(":freezing"))]
    try:
        result = golow.compare(
            model, mode=mode, batch=batch, resolution=resolution, sequence=sequence, device=device,
            precision=precision, levels=fitting, time_limit=0.1, brief=True,
        )  # fmt: skip
    except GolowError as error:
        return [f"error: {error.message}"] * len(levels)
    return [text(result.run(level)) if level in fitting else "-" for level in levels]


def text(run: Run) -> str:
    """``match 0.31``, or the verdict with its reason."""
    worst = run.check.worst
    if run.check.verdict == "match" and worst is not None:
        return f"match {worst.error / worst.limit if worst.limit else 0:.2f}"
    return f"{run.check.verdict}: {run.check.reason}"


if __name__ == "__main__":
    sys.exit(main())
