"""Which faults of a single step does golow find: by the outputs at the end, and step by step?

    PYTHONPATH=tests python benchmarks/planted_steps.py
    PYTHONPATH=tests python benchmarks/planted_steps.py --device cuda --precision bf16

A network of fifty layers with random weights runs at the direct level, a step at a time. After one
step a fault is put into what it wrote, as a wrong kernel would leave it. Both checks then judge:
that of the outputs, against float64 with eager beside it, and that of the operations. A row a
fault: how many of the steps where it was planted each check finds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors.numpy import save_file

from golow.check.moved_bundle import working_rounding
from golow.check.reference import Standard
from golow.check.steps import step_errors
from golow.levels import ladder
from golow.levels.direct.watched_values import Watch
from golow.levels.starter import Starter
from golow.lower.ir.graph import Value
from golow.records.workload import Device, Precision
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.models.deep import Deep
from support.plants.planted_steps import PLANTS, under_plant

WIDTH, PLACES = 64, 8
FAULTS = (
    "sign of every sixteenth lane",
    "last row left out",
    "stale tile",
    "one wrong element",
    "off by a twentieth",
    "shifted by one",
)


def main() -> int:
    options = arguments()
    with scratch_folder() as folder:
        bundle = written(options, folder)
        standard = Standard(bundle, folder, Starter())
        program = loaded(bundle, options.device)
        graph = program.execution.built.graph
        names = [v.name for n in graph.nodes for v in n.outputs if is_planted(program, v)]
        places = names[:: max(1, len(names) // PLACES)][:PLACES]
        print(f"{options.device}, {options.precision}, {len(names)} results; each fault at")
        print(f"{len(places)} of them.\n\n| fault | by the outputs | step by step |\n|---|---|---|")
        print(row("none", [verdicts(program, standard, bundle, folder)]), flush=True)
        for fault in FAULTS:
            found = []
            for program.at in places:
                program.plant = PLANTS[fault]
                found.append(verdicts(program, standard, bundle, folder))
            print(row(fault, found), flush=True)
    return 0


def row(fault: str, found: Sequence[tuple[bool, bool]]) -> str:
    """How often each check found a fault."""
    return f"| {fault} | {sum(one[0] for one in found)} | {sum(one[1] for one in found)} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--precision", default="default", choices=get_args(Precision))
    return parser.parse_args()


def written(options: argparse.Namespace, folder: Path) -> Bundle:
    torch.manual_seed(0)
    request = Request(
        Deep(WIDTH),
        torch.randn(8, 16, WIDTH),
        device=options.device,
        precision=options.precision,
    )
    bundle, prepared = write_bundle(prepare(request), folder / "bundle")
    write_graph(prepared, bundle)
    return bundle


def loaded(bundle: Bundle, device: Device) -> Any:
    """The direct level's program in this process, with a fault where it is told."""
    base: Any
    if device == "cpu":
        from golow.levels.direct.onednn.run.program import OneDnn as base
    else:
        from golow.levels.direct.cudnn.run.program import CuDnn as base

    class Planted(base):  # type: ignore[misc]
        at, plant = "", staticmethod(lambda values: values)

        def run_watched(self, index: int, watch: Watch) -> None:
            super().run_watched(index, under_plant(self.execution, self.at, self.plant, watch))

    level = {"cpu": "onednn", "cuda": "cudnn"}[device]
    launch = ladder.choose(level, "infer", device).prepare(bundle, open_cache())
    program = Planted(*(Path(item) for item in launch.command if Path(item).is_dir()))
    program.load(bundle.folder)
    return program


def is_planted(program: Any, value: Value | None) -> bool:
    """Whether a fault can be put there: floats with rows, made in each iteration."""
    values = program.execution.built.values
    if value is None or value.name not in values or values[value.name][1] < 0:
        return False
    return value.dtype == "float32" and len(value.shape) > 1


def verdicts(program: Any, standard: Standard, bundle: Bundle, folder: Path) -> tuple[bool, bool]:
    """Whether the check of the outputs, and that of the operations, find the fault."""

    def outputs(batches: Sequence[int], rate: float, file: Path) -> None:
        found = {}
        for step, batch in enumerate(batches):
            program.run_watched(batch, lambda _: None)
            found[f"{step}/output/0"] = program.result(("output", "0"))
        save_file(found, file)

    by_outputs = standard.judge(outputs).check.verdict != "match"
    errors = step_errors(program, bundle, 0.0, working_rounding(bundle), folder)
    return by_outputs, any(not item.share <= 1.0 for item in errors)


if __name__ == "__main__":
    sys.exit(main())
