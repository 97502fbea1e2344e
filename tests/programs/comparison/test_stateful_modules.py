"""Modules that change their inputs or assign buffers train and run like eager at other levels, and
what they print goes to standard error."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import golow
from golow.records.workload import Mode
from support.models import stateful
from support.models.reported_modules import Derivative
from support.workers.kept_workers import kept_in_comparisons

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked")]

LEVELS = ["eager", "torchscript", "onednn"]


@pytest.fixture(scope="module", autouse=True)
def kept() -> Iterator[None]:
    """The comparisons share their workers."""
    with kept_in_comparisons():
        yield


def verdicts(module: nn.Module, mode: Mode, levels: list[str]) -> list[str]:
    """The verdict of each level, and why it is not a match."""
    torch.manual_seed(0)
    result = golow.compare(
        module, torch.randn(8, 5), mode=mode, levels=levels, time_limit=0.1, threads=1, brief=True,
        loss="mse_of_outputs" if mode == "train" else None, quiet=True,
    )  # fmt: skip
    return [
        f"{run.check.verdict} {run.check.reason}".partition(":")[0]
        if run.check.verdict == "unavailable"
        else f"{run.check.verdict} {run.check.reason}".strip()
        for run in result.comparison.runs
    ]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (stateful.ReluFirst, "train"),
        (stateful.Doubles, "infer"),
        (stateful.Doubles, "train"),
        (stateful.AssignsInside, "train"),
    ],
)
def test_they_match_at_every_level(kind: type[nn.Module], mode: Mode) -> None:
    assert verdicts(kind(), mode, LEVELS) == ["match"] * 3


def test_a_frozen_norm_stays_frozen() -> None:
    module = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    module[1].eval()
    assert verdicts(module, "train", LEVELS) == ["match"] * 3


def test_gradients_taken_in_inference() -> None:
    """torch.jit cannot trace them, and says so."""
    module = Derivative(lambda x: x.square().sum().sqrt())
    found = verdicts(module, "infer", LEVELS)
    assert found == ["match", "unavailable torch.jit cannot trace it", "match"]


class Complex(nn.Module):
    """TorchScript's own differentiation lacks the sign of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 6)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.view_as_complex(self.layer(x).reshape(-1, 3, 2))
        return torch.view_as_real(z / (1 + z.abs()))


class Spectral(nn.Sequential):
    """A trace has no regions of `torch.no_grad`, in which the norm writes its vectors."""

    def __init__(self) -> None:
        super().__init__(spectral_norm(nn.Linear(5, 3)))


@pytest.mark.parametrize("kind", [Complex, Spectral])
def test_a_step_that_torchscript_cannot_differentiate(kind: type[nn.Module]) -> None:
    found = verdicts(kind(), "train", LEVELS)
    assert found == ["match", "unavailable TorchScript cannot train it", "match"]


PRINTS = """
from torch import Tensor, nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        print("from the constructor")
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        print("from the forward pass")
        return self.layer(x)
"""


@pytest.mark.usefixtures("forked_commands")
def test_what_a_model_prints_is_not_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(PRINTS)
    arguments = "compare prints.py:Net --input 4 --levels eager,onednn --time-limit 0.1 --json -"
    found = subprocess.run(
        [sys.executable, "-m", "golow", *arguments.split(), "--threads", "1"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    assert [run["check"]["verdict"] for run in json.loads(found.stdout)["runs"]] == ["match"] * 2
    assert "from the constructor" in found.stderr
    assert "from the forward pass" in found.stderr
