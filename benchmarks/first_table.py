"""How long does a comparison take from the prompt to its table, and where does the time go?

    python benchmarks/first_table.py --page docs/results/first_table.md
    python benchmarks/first_table.py --only lenet5 --repeat 5

Each comparison is a new process, first with an empty cache of golow's, then with what that left
there. Run it while nothing else computes: it states wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from page_part import put_into

PROGRAM = """
import json, sys, time
started = time.time()
import golow

class Stages:
    def __init__(self): self.begun = []
    def stage(self, text): self.begun.append((text, time.time()))
    def race(self, *given): pass

stages, options = Stages(), json.loads(sys.argv[1])
result = golow.compare(**options, observer=stages)
result.table()
verdicts = {run.check.verdict for run in result.comparison.runs}
print(json.dumps([started, stages.begun, time.time(), sorted(verdicts)]))
"""
NO_COMPILER = ["eager", "torchscript", "onnxruntime", "onednn"]
SECOND = {"time_limit": 1.0}
WORKLOADS: Mapping[str, Mapping[str, object]] = {
    "lenet5, four levels, 1 s of racing": {"model": "lenet5", "levels": NO_COMPILER, **SECOND},
    "lenet5, training, three levels, 1 s": {
        "model": "lenet5",
        "mode": "train",
        "levels": ["eager", "torchscript", "onednn"],
        **SECOND,
    },
    "mlp, all levels": {"model": "mlp"},
    "resnet18, four levels, 1 s": {"model": "resnet18", "levels": NO_COMPILER, **SECOND},
    "resnet50, all levels": {"model": "resnet50"},
    "resnet50, all levels, 64 pixels": {"model": "resnet50", "resolution": 64},
    "mobilenet_v2, all levels": {"model": "mobilenet_v2", "resolution": 96},
    "llama_tiny, four levels, 1 s": {"model": "llama_tiny", "levels": NO_COMPILER, **SECOND},
    "lstm, four levels, 1 s": {"model": "lstm", "levels": NO_COMPILER, **SECOND},
    "resnet18, training, all levels": {"model": "resnet18", "mode": "train", "resolution": 64},
}
KINDS = ("imports", "preparing", "reference", "building", "loading", "checking", "race", "after")
WORDS = {
    "preparing the workload": "preparing",
    "capturing the graph": "preparing",
    "computing the float64 reference": "reference",
    "calibrating the race": "race",
    "checking the state after the race": "after",
    "measuring memory, energy and layers": "after",
}


def main() -> int:
    """Run every workload cold and warm, and print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", default="", help="workloads whose names begin so")
    parser.add_argument("--repeat", type=int, default=3, help="comparisons with a warm cache")
    parser.add_argument("--page", type=Path, help="also write the table into this page")
    given = parser.parse_args()
    rows = []
    for name, options in WORKLOADS.items():
        if name.startswith(given.only):
            rows += measured(name, options, given.repeat)
            print(table(rows[-2:]), flush=True)
    if given.page is not None:
        given.page.write_text(put_into(given.page.read_text(), "first table", table(rows)))
    return 0


def measured(name: str, options: Mapping[str, object], repeat: int) -> list[list[str]]:
    """A row of the cold comparison, and one of the medians of the warm ones."""
    with tempfile.TemporaryDirectory() as cache:
        cold = seconds(options, cache)
        warm = [seconds(options, cache) for _ in range(repeat)]
    middle = {kind: median(one[kind] for one in warm) for kind in ("total", *KINDS)}
    return [row(f"{name}, cold", cold), row(f"{name}, warm", middle)]


def seconds(options: Mapping[str, object], cache: str) -> dict[str, float]:
    """Seconds of a comparison in a new process, in all and of each kind of stage."""
    environment = {**os.environ, "GOLOW_CACHE": cache}
    command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
    prompt = time.time()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    _, stages, end, verdicts = json.loads(done.stdout.splitlines()[-1])
    if not {"match"} <= set(verdicts) <= {"match", "unavailable"}:
        raise RuntimeError(f"{options}: {verdicts}")
    found = dict.fromkeys(KINDS, 0.0) | {"total": end - prompt, "imports": stages[0][1] - prompt}
    ends = [begun for _, begun in stages[1:]] + [end]
    for (text, begun), finished in zip(stages, ends, strict=True):
        kind = WORDS.get(text) or text.rpartition(": ")[2]
        found[kind if kind in KINDS else "after"] += finished - begun
    return found


def row(name: str, found: Mapping[str, float]) -> list[str]:
    """A row of the table."""
    return [name, *(f"{found[kind]:.1f}" for kind in ("total", *KINDS))]


def table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as Markdown; seconds."""
    head = ["workload", "total", *KINDS]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
