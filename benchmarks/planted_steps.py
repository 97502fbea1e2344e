"""Which faults of a single step does golow find: by the outputs at the end, and step by step?

    python benchmarks/planted_steps.py
    python benchmarks/planted_steps.py --device cuda --precision bf16

A network of fifty layers with random weights runs at the direct level, a step at a time. After one
step a fault is put into what it wrote, as a wrong kernel would leave it. Both checks then judge:
that of the outputs, against float64 with eager beside it, and that of the operations. A row a
fault: how many of the steps where it was planted each check finds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from golow.check.moved_bundle import working_rounding
from golow.check.reference import Standard
from golow.check.steps import step_errors
from golow.levels import ladder
from golow.levels.direct.plan_program import PlanProgram
from golow.levels.starter import Starter
from golow.records.workload import Device, Precision
from golow.storage.cache import open_cache
from golow.storage.scratch import scratch_folder
from golow.worker.protocol import ValuesReport
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import write_graph
from golow.workload.prepare import prepare
from golow.workload.request import Request

WIDTH, LAYERS, PLACES = 64, 50, 8
Plant = Callable[[np.ndarray], np.ndarray]


class Deep(nn.Module):
    """Fifty layers: products with norms, rectifiers and sums, as networks of images and texts have
    them."""

    def __init__(self) -> None:
        super().__init__()
        self.products = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(LAYERS // 2))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        for place, product in enumerate(self.products):
            y = nn.functional.gelu(product(x))
            x = self.norms[place // 2](x + y) if place % 2 else y
        return self.head(x.mean(1))


def lane_sign(values: np.ndarray) -> np.ndarray:
    values.reshape(-1)[3::16] *= -1
    return values


def last_row(values: np.ndarray) -> np.ndarray:
    values.reshape(-1, values.shape[-1])[-1] = 0
    return values


def stale_tile(values: np.ndarray) -> np.ndarray:
    rows = values.reshape(-1, values.shape[-1])
    rows[:8, :8] = rows[-8:, -8:].copy()
    return values


def one_element(values: np.ndarray) -> np.ndarray:
    flat = values.reshape(-1)
    flat[flat.size // 2] += 2 * float(np.sqrt(np.square(flat).mean()))
    return values


def scaled(values: np.ndarray) -> np.ndarray:
    return values * np.float32(1.05)


def shifted(values: np.ndarray) -> np.ndarray:
    return np.roll(values, 1, axis=-1)


PLANTS: dict[str, Plant] = {
    "sign of every sixteenth lane": lane_sign,
    "last row left out": last_row,
    "a stale tile of 8 x 8": stale_tile,
    "one wrong element": one_element,
    "off by a twentieth": scaled,
    "shifted by one": shifted,
}


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
        right = verdicts(program, standard, bundle, folder, None, lambda values: values)
        print(f"| none | {right[0]:d} | {right[1]:d} |", flush=True)
        for name, plant in PLANTS.items():
            found = [verdicts(program, standard, bundle, folder, at, plant) for at in places]
            print(
                f"| {name} | {sum(f[0] for f in found)} | {sum(f[1] for f in found)} |", flush=True
            )
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=get_args(Device))
    parser.add_argument("--precision", default="default", choices=get_args(Precision))
    return parser.parse_args()


def written(options: argparse.Namespace, folder: Path) -> Bundle:
    torch.manual_seed(0)
    request = Request(
        Deep(), torch.randn(8, 16, WIDTH), device=options.device, precision=options.precision
    )
    bundle, prepared = write_bundle(prepare(request), folder / "bundle")
    write_graph(prepared, bundle)
    return bundle


def loaded(bundle: Bundle, device: Device) -> PlanProgram:
    """The direct level's program in this process."""
    level = {"cpu": "onednn", "cuda": "cudnn"}[device]
    launch = ladder.choose(level, "infer", device).prepare(bundle, open_cache())
    folders = [Path(item) for item in launch.command if Path(item).is_dir()]
    program: PlanProgram
    if device == "cpu":
        from golow.levels.direct.onednn.run.program import OneDnn

        program = OneDnn(*folders)
    else:
        from golow.levels.direct.cudnn.run.program import CuDnn

        program = CuDnn(*folders)
    program.load(bundle.folder)
    return program


def is_planted(program: PlanProgram, value: Any) -> bool:
    """Whether a fault can be put there: floats with rows, made in each iteration."""
    values = program.execution.built.values
    if value is None or value.name not in values or values[value.name][1] < 0:
        return False
    return value.dtype == "float32" and len(value.shape) > 1


def verdicts(
    program: PlanProgram,
    standard: Standard,
    bundle: Bundle,
    folder: Path,
    at: str | None,
    plant: Plant,
) -> tuple[bool, bool]:
    """Whether the check of the outputs, and that of the operations, find the fault."""
    execution = program.execution
    values = execution.built.values

    def faulty(position: int) -> None:
        if at is not None and values[at][1] == position:
            execution.write(values[at][0], plant(execution.read(values[at][0]).copy()))

    def outputs(batches: Sequence[int], rate: float, file: Path) -> None:
        found = {}
        for step, batch in enumerate(batches):
            program.run_watched(batch, faulty)
            found[f"{step}/output/0"] = program.result(("output", "0"))
        save_file(found, file)

    class Worker:
        """The planted program as a worker that hands over its values."""

        def values(self, batch: int, rate: float, *rest: Any) -> ValuesReport:
            plain = program.run_watched
            program.run_watched = lambda index, watch: plain(  # type: ignore[method-assign]
                index, lambda position: (faulty(position), watch(position))[1]
            )
            try:
                return program.values(batch, rate, *rest)
            finally:
                program.run_watched = plain  # type: ignore[method-assign]

    by_outputs = standard.judge(outputs).check.verdict != "match"
    errors = step_errors(Worker(), bundle, 0.0, working_rounding(bundle), folder)  # type: ignore[arg-type]
    return by_outputs, any(not item.share <= 1.0 for item in errors)


if __name__ == "__main__":
    sys.exit(main())
