"""No worker gets a time on a GPU for work that it does not do there while it is timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.api import Result
from golow.measure.gpu.nvml import Card
from golow.records.workload import Mode
from support.places import SUPPORT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
PLANTED_LEVELS = SUPPORT / "plants" / "planted_gpu_levels.py"
LEVELS = ["eager", "cudagraph", "cudnn", "libtorch"]
PLANTED: dict[Mode, dict[str, tuple[str, ...]]] = {
    "infer": {
        "cudagraph": ("last-node-missing", "stale-input"),
        "cudnn": ("last-step-missing", "stale-input"),
    },
    "train": {
        "cudagraph": ("skipped-update",),
        "cudnn": ("last-step-missing", "skipped-update"),
    },
}


def compare(
    cache: Path, mode: Mode, planted: tuple[str, ...], width: int = 256, **settings: object
) -> Result:
    """Two layers of that width, planted workers beside the levels that are as they should be."""
    return golow.compare(
        nn.Sequential(nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10)),
        torch.randn(width // 4, 1, 28, 28),
        mode=mode,
        device="cuda",
        precision="ieee",
        workers={name: [sys.executable, str(PLANTED_LEVELS), name, str(cache)] for name in planted},
        cache=cache,
        **settings,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("mode", PLANTED)
def test_a_fault_of_a_level_in_its_timed_iterations_is_found(mode: Mode, tmp_path: Path) -> None:
    """By the whole result that it hands over. The levels without a fault are timed."""
    names = tuple(f"{level}-{fault}" for level, all_ in PLANTED[mode].items() for fault in all_)
    result = compare(tmp_path, mode, names, levels=LEVELS, time_limit=5)
    for run in result.comparison.runs:
        print(f"{run.level}: {run.check.verdict}: {run.check.reason}\n{run.log[-2000:]}")
    for name in names:
        run = result.run(name)
        assert run.check.verdict == "differs", name
        assert run.check.reason.startswith("while it is timed"), name
        assert run.time is None
    for name in LEVELS:
        run = result.run(name)
        assert (run.check.verdict, run.check.reason) == ("match", "")
        assert run.time is not None


def test_whose_clock_is_not_golows_has_no_time(tmp_path: Path) -> None:
    """Events that do not enclose the work, and events of which half is told. An iteration takes the
    GPU longer than the host; otherwise, events on any stream show the host's time."""
    names = ("other-stream", "half-clock")
    result = compare(tmp_path, "infer", names, width=8192, levels=["eager"], time_limit=5)
    for name in names:
        run = result.run(name)
        print(name, run.check.verdict, run.check.reason, run.device, run.log[-2000:])
        assert run.check.verdict == "failed"
        assert "by golow's clock" in run.check.reason
        assert run.time is None


def test_work_that_is_not_on_the_gpu_is_no_work_of_it(tmp_path: Path) -> None:
    """NVML tells, although results and clocks agree."""
    with Card() as card:
        if card.other_processes():
            pytest.skip("other processes use the GPU, too")
    result = compare(tmp_path, "infer", ("on-host",), levels=["eager"], time_limit=4)
    run = result.run("on-host")
    print(result.run("eager").device)
    print(run.check.verdict, run.check.reason, run.device, run.log[-2000:])
    assert run.check.verdict == "failed"
    assert "the GPU was idle while it iterated" in run.check.reason
    assert run.time is None
    assert run.quantity("utilization") == 0
