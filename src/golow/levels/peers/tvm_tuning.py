"""TVM with tuned schedules: MetaSchedule tries some for each kernel on this machine and keeps the
fastest.

Runs inside the exporting process, which imports PyTorch and TVM.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING

from golow.levels.peers import tvm as level
from golow.records.workload import Workload

if TYPE_CHECKING:
    from torch import Tensor, nn

TRIALS, BRIEF_TRIALS = 64, 8
"""Schedules that are timed for each distinct kernel."""

AT_ONCE = 16
"""Schedules of a kernel that are built and timed before the next ones are chosen."""

BUILD_SECONDS = RUN_SECONDS = 120.0
"""Limits of one trial. On a busy machine its process needs a minute to import TVM."""


OTHER_DEVICES = ("cuda", "rocm", "hexagon")


def leave_out_other_devices() -> None:
    """Keep this process from loading the matrix instructions of other devices: TVM loads those of
    all devices before it tunes, and parses them for half a minute, in each of its processes."""
    for device in OTHER_DEVICES:
        name = f"tvm.s_tir.tensor_intrin.{device}"
        sys.modules.setdefault(name, ModuleType(name))


def export(module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path) -> None:
    """Tune and compile the module with the whole budget."""
    _export(module, inputs, workload, folder, TRIALS)


def export_briefly(
    module: nn.Module, inputs: tuple[Tensor, ...], workload: Workload, folder: Path
) -> None:
    """Tune and compile the module with a small budget."""
    _export(module, inputs, workload, folder, BRIEF_TRIALS)


def _export(
    module: nn.Module,
    inputs: tuple[Tensor, ...],
    workload: Workload,
    folder: Path,
    trials: int,
) -> None:
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule

    leave_out_other_devices()
    translated, target = level.translated(module, inputs), level.target(workload)
    steps = (
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.get_pipeline("zero"),
    )
    with target:
        prepared = tvm.transform.Sequential(steps)(translated)
    relaxed = meta_schedule.relax_integration
    kernels = len(relaxed.extract_tasks(prepared, target, {}))
    with TemporaryDirectory() as records:
        database = relaxed.tune_relax(
            prepared,
            {},
            target,
            records,
            max_trials_global=trials * kernels,
            max_trials_per_task=trials,
            num_trials_per_iter=min(trials, AT_ONCE),
            builder=meta_schedule.builder.LocalBuilder(
                max_workers=workload.threads,
                timeout_sec=BUILD_SECONDS,
                initializer=leave_out_other_devices,
            ),
            runner=meta_schedule.runner.LocalRunner(timeout_sec=RUN_SECONDS),
            # Its default model of costs needs another package; without it candidates are drawn.
            cost_model="xgb" if find_spec("xgboost") else "random",
            seed=workload.seed,
        )
        compiled = relaxed.compile_relax(database, prepared, target, {})
    compiled.export_library(str(folder / level.MODEL))
