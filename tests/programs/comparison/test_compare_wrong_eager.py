"""A comparison whose baseline is wrong, with real workers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import golow
from golow.report.comparison.advice import advice

pytestmark = pytest.mark.usefixtures("forked")


class WrongLinear(nn.Linear):
    """A tenth too large in float32, but right in float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1.0 if x.dtype is torch.float64 else 1.1)


@pytest.mark.slow
@pytest.mark.usefixtures("nobody_left")
def test_a_wrong_eager_is_timed_and_says_so(tmp_path: Path) -> None:
    torch.manual_seed(0)
    result = golow.compare(
        WrongLinear(64, 64, bias=False),
        torch.randn(8, 64),
        levels=["eager", "torchscript"],
        workers={"right": [sys.executable, "-m", "golow.worker.plant", "--products", "1"]},
        threads=1,
        interval=0.5,
        time_limit=3,
        cache=tmp_path,
        quiet=True,
    )
    runs = {run.level: run for run in result.comparison.runs}
    assert {name: run.check.verdict for name, run in runs.items()} == {
        "eager": "differs",
        "torchscript": "differs",
        "right": "match",
    }
    assert runs["eager"].time is not None
    assert runs["right"].ratio is not None
    assert runs["torchscript"].time is None  # it repeats the fault, and is no baseline
    assert advice(result.comparison).startswith("Eager itself is wrong: ")
    assert any("eager is farther from float64" in note for note in result.comparison.notes)
